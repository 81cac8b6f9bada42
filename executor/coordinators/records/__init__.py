"""Records of `__consumer_offsets` and `__transaction_state`: entities and their encoding.

They are Kafka's own schemas (4.3.1), so that its tools read these topics and a coordinator here reads Kafka's
records.
"""
