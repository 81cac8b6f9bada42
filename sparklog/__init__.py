"""sparklog: a Kafka cluster that lives inside one Spark application."""
