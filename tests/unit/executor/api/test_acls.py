"""Produce and Fetch under ACLs, over sockets: who may write and read what, from one image to the next."""

from uuid import UUID, uuid4

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.metadata.acl_records import acl_record
from sparklog.node.metadata.schemas import MetadataRecord, RemoveAccessControlEntryRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import batch, fetch, produce, rows

ASKING = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
FAILED = ErrorCode.topic_authorization_failed


def allow(
    operation: AclOperation,
    name: str,
    resource_type: AclResourceType = AclResourceType.TOPIC,
    *,
    host: str = "*",
    acl_id: UUID | None = None,
) -> MetadataRecord:
    """Return the record of an ACL for everybody."""
    acl = Acl(resource_type, PatternType.LITERAL, name, "User:*", host, operation, AclPermissionType.ALLOW)
    return acl_record(acl_id or uuid4(), acl)


@with_brokers(count=1, config=ASKING)
async def test_records_are_written_and_read_by_who_may(brokers: Brokers) -> None:
    """From the first image on that has the ACL, and from that host."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)

    async def written() -> ErrorCode:
        answer = await channel.request(produce(topic_id, batch(), acks=1))
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code

    async def read() -> ErrorCode:
        (row,) = rows(await channel.request(fetch(topic_id, {0: 0})))
        code: ErrorCode = row.error_code
        return code

    assert (await written(), await read()) == (FAILED, FAILED)
    await brokers.commit(allow(AclOperation.WRITE, "t", host="10.0.0.1"), allow(AclOperation.READ, "other"))
    assert (await written(), await read()) == (FAILED, FAILED)
    await brokers.commit(allow(AclOperation.WRITE, "t", host="127.0.0.1"))
    assert (await written(), await read()) == (ErrorCode.none, FAILED)
    await brokers.commit(allow(AclOperation.READ, "t"))
    assert (await written(), await read()) == (ErrorCode.none, ErrorCode.none)


@with_brokers(count=1, config=ASKING)
async def test_topic_that_is_not_there_is_not_told_from_one_that_may_not_be_read(brokers: Brokers) -> None:
    """By name; ids are no secrets, and what stands for nothing is said to."""
    await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(UUID(int=77), {0: 0})))
    assert row.error_code is ErrorCode.unknown_topic_id
    answer = await channel.request(produce(UUID(int=77), batch(), acks=1))
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.unknown_topic_id


@with_brokers(count=1, config=ASKING)
async def test_session_whose_reader_may_read_no_more_is_told_though_nothing_else_is_new(
    brokers: Brokers,
) -> None:
    """A consumer at the end of a quiet topic would wait for records that it will never get."""
    topic_id = await brokers.create_topic("t", [(0,)])
    reading = uuid4()
    await brokers.commit(allow(AclOperation.READ, "t", acl_id=reading), allow(AclOperation.WRITE, "t"))
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(), acks=1))
    full = await channel.request(fetch(topic_id, {0: 1}, session_epoch=0))
    again = await channel.request(fetch(topic_id, {}, session_id=full.session_id, session_epoch=1))
    assert (full.error_code, again.responses) == (ErrorCode.none, ())
    await brokers.commit(RemoveAccessControlEntryRecord(id=reading))
    for session_epoch in (2, 3):
        request = fetch(topic_id, {}, session_id=full.session_id, session_epoch=session_epoch)
        (row,) = rows(await channel.request(request))
        assert row.error_code is FAILED
    await brokers.commit(allow(AclOperation.READ, "t"))
    (row,) = rows(await channel.request(fetch(topic_id, {}, session_id=full.session_id, session_epoch=4)))
    assert row.error_code is ErrorCode.none


@with_brokers(count=1, config=ASKING)
async def test_follower_needs_leave_to_act_for_the_cluster(brokers: Brokers) -> None:
    """Whoever names himself a replica would read everything, up to the log's end, and acknowledge it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(allow(AclOperation.READ, "t"))
    channel = await brokers.connect(0)
    as_follower = fetch(topic_id, {0: 0}, replica=(7, 1))
    (row,) = rows(await channel.request(as_follower))
    assert row.error_code is FAILED
    await brokers.commit(allow(AclOperation.CLUSTER_ACTION, "kafka-cluster", AclResourceType.CLUSTER))
    (row,) = rows(await channel.request(as_follower))
    assert row.error_code is not FAILED


@with_brokers(count=1, config=ASKING)
async def test_session_is_not_continued_as_a_follower_by_who_began_it_as_a_consumer(brokers: Brokers) -> None:
    """READ would do for it then, and he would read past the high watermark, and move it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(allow(AclOperation.READ, "t"))
    channel = await brokers.connect(0)
    for first, then in ((None, (0, 1)), ((0, 1), None)):
        begun = await channel.request(fetch(topic_id, {0: 0}, session_epoch=0, replica=first))
        request = fetch(topic_id, {0: 0}, session_id=begun.session_id, session_epoch=1, replica=then)
        answer = await channel.request(request)
        assert (answer.error_code, answer.responses) == (ErrorCode.fetch_session_id_not_found, ())
