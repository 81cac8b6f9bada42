"""Topics as tables of Iceberg: the driver adds the tier's files to the tables of a catalogue."""
