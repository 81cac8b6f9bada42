"""What stands before the handlers of APIs: what a request may not do is refused here, item by item.

A guard asks for exactly what Kafka's handler of the API asks for, in its order, and answers for what is
denied as Kafka does; the handler is given the rest. Nothing that is answered here says whether something
exists that may not be seen. A topic is asked about by name; an id that stands for nothing in the image whose
ACLs decide is unknown, and the handler, whose image may be another, is not asked about it.

Source: Kafka's KafkaApis and ControllerApis.
"""
