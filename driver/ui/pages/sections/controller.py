"""The controller and the quorum of the metadata log."""

from sparklog.driver.ui.machine.status import ControllerStatus, VoterStatus
from sparklog.driver.ui.pages.html import Html, element
from sparklog.driver.ui.pages.number_formats import count, duration
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, plain, right, section, table


def _shows(shown: Shown) -> tuple[ControllerStatus | None, str, str]:
    return shown.status.controller, shown.status.cluster_id, shown.status.bootstrap_servers


def _render(shows: tuple[ControllerStatus | None, str, str]) -> Html:
    controller, cluster_id, bootstrap_servers = shows
    about = element(
        "p",
        f"Cluster {cluster_id}, bootstrap.servers ",
        element("code", bootstrap_servers),
        "; the controller is this application's driver",
    )
    if controller is None:
        return section("Controller", about, element("p", "It does not lead."), id_="sl-controller")
    leads = element(
        "p",
        f"Node {controller.node_id} leads in epoch {controller.leader_epoch}, "
        f"committed up to offset {count(controller.high_watermark)}",
        None if controller.has_majority else element("strong", "; too few voters are in touch"),
    )
    rows = [_row(voter) for voter in controller.voters]
    columns = ("Replica", "", "Log end", "Lag", "Last heard of")
    return section("Controller", about, leads, table(columns, rows, empty="No replica."), id_="sl-controller")


def _row(voter: VoterStatus) -> list[Cell]:
    age_ms = voter.last_fetch_age_ms
    return [
        plain(f"broker {voter.node_id}"),
        plain("voter" if voter.is_voter else "observer"),
        right(count(voter.log_end_offset)),
        right(count(voter.lag)),
        right("never" if age_ms is None else f"{duration(age_ms)} ago"),
    ]


CONTROLLER = Section(_shows, _render)
