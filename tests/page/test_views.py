"""Each view of the control page shows the state, updates without a reload, and its buttons work."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Locator, Page, expect

import odradek
from tests.lab.explain.staged_groups import RELEASE, ShareMember
from tests.page.conftest import Open, Staged, transaction
from tests.support.chromium import HANG_MS
from tests.support.deadlines import HANG_S
from tools.client.cluster import Cluster

pytestmark = [pytest.mark.chromium, pytest.mark.more]
expect.set_options(timeout=HANG_MS)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))


def detail(page: Page, text: str) -> Locator:
    """The line of details below a partition's strip of batches. The tooltip (title) of the batch has the same text."""
    return page.locator(".detail", has_text=text)


def test_an_open_transaction_is_shown_with_what_it_holds_up_until_it_ends(
    open_page: Open, staged: Staged
) -> None:
    page = open_page("transactions")
    open_one = row(page, "forgetful")
    expect(open_one).to_contain_text("Ongoing")
    expect(open_one).to_contain_text("orders-0 stops at offset 9, 3 before the high watermark")
    expect(row(page, "billing")).to_contain_text("CompleteCommit")
    staged.forgetful.commit_transaction(HANG_S)
    expect(open_one).to_contain_text("CompleteCommit")
    expect(page.get_by_text("2 CompleteCommit")).to_be_visible()


def test_an_open_transaction_is_explained_and_aborted_by_a_button(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    page.get_by_role("button", name="explain forgetful").click()
    expect(page.get_by_role("region", name="Explanation")).to_contain_text("forgetful")
    page.get_by_role("button", name="abort forgetful").click()
    page.get_by_role("dialog").get_by_role("button", name="abort").click()
    expect(row(page, "forgetful")).to_contain_text("CompleteAbort")
    expect(page.get_by_role("button", name="abort")).to_have_count(0)


def test_the_batch_that_holds_readers_is_in_view(open_page: Open, staged: Staged) -> None:
    for _ in range(30):
        transaction(staged.billing, *"abcdefgh")
    page = open_page("partitions/orders", viewport={"width": 500, "height": 700})
    expect(page.locator("rect.open")).to_be_in_viewport()
    page.get_by_role("application", name="Batches of orders-0").evaluate(
        "each => { each.scrollLeft = each.scrollWidth }"
    )
    expect(page.locator("rect.open")).not_to_be_in_viewport()
    page.get_by_role("button", name="where readers wait").click()
    expect(page.locator("rect.open")).to_be_in_viewport()


def test_batches_are_boxes_whose_colour_follows_the_markers(open_page: Open, staged: Staged) -> None:
    page = open_page("partitions/orders")
    strip = page.get_by_role("application", name="Batches of orders-0")
    expect(strip.locator("rect.marker")).to_have_count(4)
    assert [strip.locator(f"rect.{kind}").count() for kind in ("committed", "aborted", "open")] == [3, 1, 1]
    expect(strip.get_by_text("last stable offset: readers stop here")).to_be_visible()
    staged.forgetful.abort_transaction(HANG_S)
    expect(strip.locator("rect.aborted")).to_have_count(2)
    expect(strip.locator("rect.open")).to_have_count(0)
    expect(strip.get_by_text("last stable offset: readers stop here")).to_have_count(0)


def test_the_arrow_keys_walk_over_the_batches(open_page: Open, staged: Staged) -> None:
    page = open_page("partitions/orders")
    strip = page.get_by_role("application", name="Batches of orders-0")
    expect(strip.locator("rect.marker")).to_have_count(4)
    strip.focus()
    page.keyboard.press("ArrowRight")
    expect(detail(page, "2 records, offsets 0 to 1")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(detail(page, "commit marker at offset 2")).to_be_visible()
    page.keyboard.press("End")
    expect(detail(page, "commit marker at offset 11")).to_be_visible()


def test_a_pointer_over_a_batch_tells_its_producer(open_page: Open, staged: Staged) -> None:
    page = open_page("partitions/orders")
    page.locator("rect.open").hover()
    expect(detail(page, "its transaction has not ended")).to_be_visible()


def test_messages_are_searched_and_shown_as_the_viewer_wants(
    open_page: Open, staged: Staged, tmp_path: Path
) -> None:
    page = open_page("messages/orders")
    records = page.get_by_role("region", name="Records")
    expect(records.locator(".state")).to_have_text(
        ["committed"] * 2 + ["aborted"] * 2 + ["committed"] * 2 + ["open", "committed"]
    )
    page.get_by_label("Show").select_option("committed only")
    page.get_by_role("button", name="show").click()
    expect(records.locator(".state")).to_have_text(["committed"] * 4)
    page.get_by_role("textbox", name="Text").fill("b")
    page.get_by_label("From").select_option("offset")
    page.get_by_role("spinbutton", name="Offset").fill("3")
    page.get_by_role("button", name="show").click()
    expect(records.get_by_role("rowheader")).to_have_text(["7"])
    page.get_by_label("Values as").select_option("Avro")
    (tmp_path / "char.avsc").write_text('{"type": "fixed", "name": "Char", "size": 1}')
    page.get_by_label("Avro schema file").set_input_files(tmp_path / "char.avsc")
    expect(records.locator("pre").nth(1)).to_have_text('"0x62"')


def test_a_message_is_written_as_text(open_page: Open, staged: Staged) -> None:
    page = open_page("messages/orders")
    page.get_by_label("Partition").fill("1")
    page.get_by_text("Write a record").click()
    page.locator("form.write textarea").first.fill("<b>new</b>")
    page.get_by_label("Headers").fill("source=page")
    page.get_by_label("Transactional id").fill("billing2")
    page.get_by_label("then").select_option("abort")
    page.get_by_role("button", name="write").click()
    records = page.get_by_role("region", name="Records")
    for text in ("<b>new</b>", "source=page", "aborted"):
        expect(records).to_contain_text(text)
    page.get_by_label("Partition").fill("7")
    page.get_by_role("button", name="write").click()
    expect(page.locator("form.write + .error")).to_contain_text("there is no partition orders-7")


def test_a_setting_of_a_topic_is_changed(open_page: Open, staged: Staged) -> None:
    page = open_page("messages/orders")
    page.get_by_text("Settings of the topic").first.click()
    setting = page.locator("tr[data-key='retention.ms']")
    expect(setting).to_contain_text("default")
    page.get_by_label("Setting", exact=True).fill("retention.ms")
    page.get_by_role("textbox", name="Value", exact=True).last.fill("60000")
    page.get_by_role("button", name="set", exact=True).click()
    expect(setting).to_contain_text("60000topic")
    page.get_by_role("button", name="to its default").click()
    expect(setting).to_contain_text("604800000default")


def test_a_group_shows_its_members_and_its_offsets_are_reset(open_page: Open, staged: Staged) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": staged.broker.bootstrap_servers,
            "group.id": "readers",
            "client.id": "<i>reader</i>",
        }
    )
    consumer.subscribe(["orders"])
    page = open_page("groups")
    while not consumer.assignment():
        consumer.poll(0.05)
    page.get_by_role("link", name="readers").click()
    group = page.get_by_role("region", name="Group readers")
    expect(group).to_contain_text("<i>reader</i>")
    expect(group).to_contain_text("orders-0, orders-1")
    group.get_by_label("topic").fill("orders")
    group.get_by_role("button", name="reset").click()
    expect(group.locator(".error")).to_have_text("the group readers has members: stop them first")
    consumer.close()
    expect(group).to_contain_text("It has no members.")
    group.get_by_role("combobox").select_option("latest")
    group.get_by_role("button", name="reset").click()
    expect(row(page, "readers").last).to_contain_text("orders-0 at 12")


def test_a_share_group_shows_its_records_in_flight(open_page: Open, staged: Staged) -> None:
    class Names:
        topic, group = "orders", "workers"

        def connect(self) -> Cluster:
            return connections.enter_context(Cluster(staged.broker.bootstrap_servers))

    with ExitStack() as connections:
        member = ShareMember(Names(), "<i>m1</i>")
        member.configure()
        member.join()
        member.fetch(2)
        page = open_page("groups")
        expect(row(page, "workers").last).to_contain_text("orders-0 from 0")
        page.get_by_role("link", name="workers").click()
        group = page.get_by_role("region", name="Group workers")
        ranges = group.get_by_role("region", name="Records of workers in flight")
        expect(ranges).to_contain_text("<i>m1</i>")
        expect(group.get_by_role("button", name="reset")).to_have_count(0)
        member.acknowledge(0, 0, RELEASE)
        expect(ranges).to_contain_text("released by <i>m1</i>")
        expect(ranges.get_by_role("row").nth(1)).to_contain_text("orders-00Available")
        group.get_by_role("button", name="explain").click()
        expect(group).to_contain_text("The start offset 0 of group workers in orders-0 waits")


def test_a_timeline_is_walked_through_and_saved(open_page: Open, staged: Staged, tmp_path: Path) -> None:
    page = open_page("timeline/forgetful")
    picture = page.get_by_role("region", name="The steps as swim lanes")
    for word in ("coordinator", "orders-0", "Ongoing", "1 record @9"):
        expect(picture.get_by_text(word, exact=True).first).to_be_visible()
    expect(picture.get_by_text("Empty", exact=True)).to_have_count(0)
    page.get_by_label("Which transactions").select_option("all transactions")
    step = page.get_by_role("button", name="step", exact=True)
    seen = []
    while step.is_enabled():
        step.click()
        seen.append(page.locator(".step").inner_text())
    assert any("fences whatever had the transactional id before" in each for each in seen)
    assert any("orders-0 joined" in each for each in seen)
    with page.expect_download() as download:
        page.get_by_role("button", name="save as SVG").click()
    download.value.save_as(tmp_path / "timeline.svg")
    texts = [each.text for each in ElementTree.parse(tmp_path / "timeline.svg").iter() if each.text]
    assert download.value.suggested_filename == "forgetful.svg"
    assert "Ongoing" in texts


def state_of(staged: Staged, node_id: int) -> str:
    return staged.broker.nodes[node_id].state


def test_a_node_is_killed_and_started(open_page: Open, staged: Staged) -> None:
    page = open_page("cluster")
    node = page.get_by_role("region", name="Node 2")
    node.get_by_role("button", name="kill").click()
    asked = page.get_by_role("dialog", name="Really kill node 2?")
    asked.get_by_role("button", name="cancel").click()
    expect(asked).to_have_count(0)
    assert state_of(staged, 2) == "running"
    node.get_by_role("button", name="kill").click()
    asked.get_by_role("button", name="kill").click()
    expect(node).to_contain_text("killed")
    assert state_of(staged, 2) == "killed"
    node.get_by_role("button", name="start").click()
    expect(node).to_contain_text("running")


def test_a_snapshot_is_kept_and_restored(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    page.get_by_role("button", name="keep a snapshot").click()
    restore = page.get_by_role("button", name="restore 1")
    expect(restore).to_be_visible()
    staged.forgetful.commit_transaction(HANG_S)
    expect(row(page, "forgetful")).to_contain_text("CompleteCommit")
    restore.click()
    page.get_by_role("dialog").get_by_role("button", name="restore 1").click()
    expect(row(page, "forgetful")).to_contain_text("Ongoing")


def test_the_rule_that_holds_a_marker_is_named_beside_its_transaction(
    open_page: Open, staged: Staged
) -> None:
    rule = staged.broker.faults.add("txn.marker transactional_id=forgetful -> hold")
    staged.forgetful.commit_transaction(HANG_S)
    page = open_page("transactions")
    expected = (
        f"txn.marker to orders-0 is held by rule {rule.id}: txn.marker transactional_id=forgetful -> hold"
    )
    expect(row(page, "forgetful")).to_contain_text(expected)
    expect(row(page, "forgetful").locator(".state")).to_have_class("state decided")
    rule.remove()
    expect(row(page, "forgetful")).not_to_contain_text("held by")


def test_a_link_is_cut_and_mended(open_page: Open, staged: Staged) -> None:
    page = open_page("cluster")
    page.get_by_role("button", name="cut").click()
    expect(page.get_by_role("rowheader", name="cut 1 2")).to_be_visible()
    assert [rule.text for rule in staged.broker.faults] == ["cut 1 2"]
    page.get_by_role("button", name="remove rule cut 1 2").click()
    expect(page.get_by_role("rowheader", name="cut 1 2")).to_have_count(0)


def test_an_hour_passes_and_the_open_transaction_is_aborted(open_page: Open, staged: Staged) -> None:
    page = open_page("cluster")
    page.get_by_role("button", name="1 h").click()
    expect(page.get_by_text("ahead of real time")).to_be_visible()
    # These are the domains of `odradek clock advance 1h`.
    assert {name for name, ms in staged.broker.clock.ahead_ms.items() if ms} == {"transactions", "ids"}
    page.get_by_role("link", name="Transactions").click()
    expect(row(page, "forgetful")).to_contain_text("CompleteAbort")


def test_a_rule_is_added_hit_and_removed(open_page: Open, staged: Staged) -> None:
    page = open_page("rules")
    page.get_by_role("textbox", name="A new rule").fill("Produce nth=1 -> delay 1ms")
    page.get_by_role("button", name="add the rule").click()
    rule = row(page, "Produce nth=1 -> delay 1ms")
    expect(rule).to_be_visible()
    transaction(staged.billing, "e")
    expect(rule.get_by_role("cell").first).to_have_text("1")
    page.get_by_role("button", name="remove rule Produce").click()
    expect(rule).to_have_count(0)


def test_a_rule_that_makes_no_sense_is_answered_with_a_sentence(open_page: Open, staged: Staged) -> None:
    page = open_page("rules")
    page.get_by_role("textbox", name="A new rule").fill("EndTxn -> explode")
    page.get_by_role("button", name="add the rule").click()
    expect(page.locator("form + .error")).to_contain_text("explode")
    page.get_by_role("textbox", name="A new rule").fill("EndTxn -> drop")
    page.get_by_role("button", name="add the rule").click()
    expect(page.get_by_role("rowheader", name="EndTxn -> drop")).to_be_visible()
    expect(page.locator(".error")).to_have_count(0)


def test_the_rules_to_begin_with_can_be_added(open_page: Open, staged: Staged) -> None:
    page = open_page("rules")
    examples = page.get_by_role("listitem").get_by_role("button")
    for at in range(examples.count()):
        examples.nth(at).click()
        page.get_by_role("button", name="add the rule").click()
        expect(page.get_by_role("button", name="remove rule")).to_have_count(at + 1)


def test_the_trace_flows_and_can_be_filtered(open_page: Open, staged: Staged) -> None:
    page = open_page("trace")
    lines = page.get_by_role("list", name="Exchanges, the newest first")
    expect(lines).to_contain_text("InitProducerId")
    page.get_by_label("API").fill("EndTxn")
    page.get_by_role("button", name="filter").click()
    expect(lines).not_to_contain_text("InitProducerId")
    lines.get_by_role("listitem").first.locator("summary").click()
    expect(lines.locator("pre").first).to_contain_text('"transactional_id": "billing"')
    before = lines.get_by_role("listitem").count()
    transaction(staged.billing, "e")
    expect(lines.get_by_role("listitem")).to_have_count(before + 1)
    page.get_by_role("button", name="stop recording").click()
    expect(page.get_by_text("The trace is off.")).to_be_visible()


def test_fetches_are_hidden_until_they_are_asked_for(open_page: Open, staged: Staged) -> None:
    page = open_page("trace")
    lines = page.get_by_role("list", name="Exchanges, the newest first")
    expect(lines).to_contain_text("InitProducerId")
    consumer = Consumer({"bootstrap.servers": staged.broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.consume(1, HANG_S)
    ended = lines.get_by_text(" EndTxn ").count()
    transaction(staged.billing, "e")
    expect(lines.get_by_text(" EndTxn ")).to_have_count(ended + 1)
    expect(lines).not_to_contain_text(" Fetch ")
    page.get_by_label("hide Fetch and Heartbeat").uncheck()
    expect(lines).to_contain_text(" Fetch ")
    consumer.close()


def test_a_token_is_asked_for_once(open_page: Open) -> None:
    with odradek.Broker(settings={"odradek.control.token": "secret"}) as broker:
        page = open_page("transactions", url=broker.control_url)
        page.get_by_label("Token of the control port").fill("secret")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_text("No producer has used a transactional id yet.")).to_be_visible()
        page.get_by_role("link", name="Groups").click()
        expect(page.get_by_text("No group has members or offsets.")).to_be_visible()


def test_a_token_to_look_shows_every_view_and_a_button_says_what_it_needs(open_page: Open) -> None:
    tokens = {"odradek.control.token": "secret", "odradek.control.token.look": "of-look"}
    with odradek.Broker(settings=tokens) as broker:
        page = open_page("&token=of-look", url=broker.control_url)
        expect(page.get_by_text("No producer has used a transactional id yet.")).to_be_visible()
        page.get_by_role("link", name="Trace").click()
        page.get_by_role("button", name="record requests").click()
        expect(
            page.get_by_text("this call needs the role stage, and the token has the role look")
        ).to_be_visible()
        page.get_by_role("link", name="Nodes and clock").click()
        page.get_by_role("button", name="kill node 1").click()
        page.get_by_role("dialog").get_by_role("button", name="kill").click()
        expect(
            page.get_by_text("this call needs the role stop, and the token has the role look")
        ).to_be_visible()
        assert broker.nodes[1].state == "running"


def test_it_says_that_the_broker_is_away_and_goes_on_when_it_is_back(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    expect(row(page, "billing")).to_be_visible()
    staged.broker.kill()
    expect(page.locator("#connection")).to_have_text("The broker does not answer.")
    staged.broker.restart()
    expect(page.locator("#connection")).to_have_text("")
    expect(row(page, "forgetful")).to_be_visible()


def test_a_view_that_is_left_leaves_no_stream_open(open_page: Open, staged: Staged) -> None:
    page = open_page("transactions")
    for _ in range(5):
        for name in ("Partitions", "Trace", "Groups", "Transactions"):
            page.get_by_role("link", name=name).click()
            expect(page.get_by_role("heading", name=name, level=2)).to_be_visible()
    # Chromium opens at most six connections to a host: leaked streams would leave none for this request.
    expect(row(page, "billing")).to_be_visible()
