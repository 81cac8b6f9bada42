"""The cluster's controller: a pure machine that decides, and a thread that gives it a log and sockets."""

from driver.controller.server import ControllerServer

__all__ = ["ControllerServer"]
