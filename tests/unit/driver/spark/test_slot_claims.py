"""Slots for brokers, as racks share them."""

from driver.spark.slots import SlotClaims


def test_slot_claims_with_an_executor_less_than_racks_let_one_rack_wait() -> None:
    """Spark counts slots that are taken too; a rack that trusted it would wait inside Spark, unseen."""
    capacity = 3
    claims = SlotClaims(lambda: capacity)
    assert [claims.take(1), claims.take(1), claims.take(1)] == [True, True, True]
    capacity = 2
    claims.give_back(1)
    assert not claims.take(1)
    capacity = 3
    assert claims.take(1)


def test_slot_claims_are_for_all_brokers_of_a_rack_or_none() -> None:
    """A barrier job starts with all its tasks; half a rack's slots help nobody, and two racks could share."""
    claims = SlotClaims(lambda: 3)
    assert claims.take(2)
    assert not claims.take(2)
    claims.give_back(2)
    assert claims.take(2)
