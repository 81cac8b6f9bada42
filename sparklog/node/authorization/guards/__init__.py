"""Guards, which run before the handlers of APIs and refuse the denied items of a request.

A guard checks exactly the operations that Kafka's handler of the API checks, in its order, and answers for
denied items as Kafka does; the handler receives the rest. No response reveals the existence of a resource
that may not be described. Topics are checked by name; an id without a topic in the image with the deciding
ACLs is unknown, and is not passed to the handler, whose image may differ.

Source: Kafka's KafkaApis and ControllerApis.
"""
