"""Decisions about the tables of topics, without a store, a catalogue or a clock."""
