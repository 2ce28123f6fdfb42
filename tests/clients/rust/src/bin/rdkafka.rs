//! Runs the orders of tests/clients/contract.py with the crate rdkafka.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use odradek_clients::{Doom, Outcome, PARTITIONS, RECORDS_A_CODEC, say, wait_for_word, word};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{CommitMode, Consumer, ConsumerGroupMetadata, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::json;

const CALL: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_millis(500);
const RECORDS: usize = 5;

#[tokio::main]
async fn main() -> Outcome {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["admin", bootstrap, topic] => admin(bootstrap, topic).await,
        ["codecs", bootstrap, topic] => codecs(bootstrap, topic).await,
        ["keys", bootstrap, topic, count] => keys(bootstrap, topic, count.parse()?).await,
        ["transactions", bootstrap, topic, id] => transactions(bootstrap, topic, id).await,
        ["read", bootstrap, topic, group, isolation, count] => {
            read(bootstrap, topic, group, isolation, count.parse()?).await
        }
        ["loop", bootstrap, source, sink, group, count] => {
            counted_loop(bootstrap, source, sink, group, count.parse()?).await
        }
        ["zombie", bootstrap, topic, id] => zombie(bootstrap, topic, id).await,
        ["member", bootstrap, topic, group] => member(bootstrap, topic, group).await,
        ["group-member", bootstrap, protocol, group, subscription, instance] => {
            group_member(bootstrap, protocol, group, subscription, instance).await
        }
        ["group-loop", bootstrap, protocol, source, sink, group, id, step] => {
            group_loop(bootstrap, protocol, [source, sink, group, id], step).await
        }
        _ => Err("usage: rdkafka ORDER BOOTSTRAP [ARGUMENT...]".into()),
    }
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    // A broker that a test kills is restarted at once.
    config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "100");
    config.set("connections.max.idle.ms", "1500").set("metadata.recovery.strategy", "none");
    config
}

fn producer(bootstrap: &str, more: &[(&str, &str)]) -> Result<FutureProducer, KafkaError> {
    let mut config = config(bootstrap);
    config.set("enable.idempotence", "true").set("linger.ms", "0");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config.create()
}

fn transactional(bootstrap: &str, id: &str) -> Result<FutureProducer, KafkaError> {
    let producer = producer(bootstrap, &[("transactional.id", id)])?;
    insist(|| producer.init_transactions(CALL))?;
    Ok(producer)
}

/// Repeats a call while its error is retriable.
fn insist(mut call: impl FnMut() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
    loop {
        match call() {
            Err(KafkaError::Transaction(error)) if error.is_retriable() => {}
            other => return other,
        }
    }
}

/// librdkafka's name of an error.
fn name_of(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(error) => format!("{:?}", error.code()),
        _ => error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| format!("{code:?}")),
    }
}

async fn send(producer: &FutureProducer, topic: &str, value: &str) -> Result<(), KafkaError> {
    let record = FutureRecord::<str, str>::to(topic).payload(value);
    producer.send(record, CALL).await.map(|_| ()).map_err(|(error, _)| error)
}

/// admin TOPIC: create it, create it again, add partitions, describe it, delete it.
async fn admin(bootstrap: &str, topic: &str) -> Outcome {
    let admin: AdminClient<DefaultClientContext> = config(bootstrap).create()?;
    let options = AdminOptions::new().operation_timeout(Some(CALL));
    let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1)).set("retention.ms", "60000");
    admin.create_topics([&new], &options).await?.remove(0).map_err(|(_, code)| format!("{code:?}"))?;
    let (_, code) = admin.create_topics([&new], &options).await?.remove(0).expect_err("it exists");
    say(json!({"again": format!("{code:?}")}));
    let more = NewPartitions::new(topic, PARTITIONS as usize + 1);
    admin.create_partitions([&more], &options).await?.remove(0).map_err(|(_, code)| format!("{code:?}"))?;
    let found = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await?.remove(0)?;
    let metadata = admin.inner().fetch_metadata(Some(topic), CALL)?;
    say(json!({
        "partitions": metadata.topics()[0].partitions().len(),
        "retention": found.get("retention.ms").and_then(|each| each.value.clone()),
    }));
    admin.delete_topics(&[topic], &options).await?.remove(0).map_err(|(_, code)| format!("{code:?}"))?;
    let left = admin.inner().fetch_metadata(None, CALL)?;
    say(json!({"left": left.topics().iter().any(|each| each.name() == topic)}));
    Ok(())
}

/// codecs TOPIC: produce idempotent batches with each codec.
async fn codecs(bootstrap: &str, topic: &str) -> Outcome {
    for codec in ["none", "gzip", "snappy", "lz4"] {
        let producer = producer(bootstrap, &[("compression.type", codec), ("linger.ms", "50")])?;
        let values: Vec<String> =
            (0..RECORDS_A_CODEC).map(|number| format!("{codec} {number} of many that are alike")).collect();
        let sent: Result<Vec<_>, _> = values
            .iter()
            .map(|value| producer.send_result(FutureRecord::<str, str>::to(topic).payload(value)))
            .collect();
        let mut first = None;
        let sent = sent.map_err(|(error, _)| error)?;
        let count = sent.len();
        for each in sent {
            let delivery = each.await?.map_err(|(error, _)| error)?;
            first.get_or_insert(delivery.offset);
        }
        say(json!({"codec": codec, "offset": first, "count": count}));
    }
    Ok(())
}

/// keys TOPIC COUNT: say to which partitions the keys "key-0", "key-1" and so on are sent, with Java's partitioner.
async fn keys(bootstrap: &str, topic: &str, count: usize) -> Outcome {
    let producer = producer(bootstrap, &[("partitioner", "murmur2_random")])?;
    for number in 0..count {
        let key = format!("key-{number}");
        let record = FutureRecord::to(topic).key(&key).payload("value");
        let delivery = producer.send(record, CALL).await.map_err(|(error, _)| error)?;
        say(json!({"key": key, "partition": delivery.partition}));
    }
    Ok(())
}

async fn fill(producer: &FutureProducer, topic: &str, word: &str) -> Outcome {
    producer.begin_transaction()?;
    for number in 0..3 {
        send(producer, topic, &format!("{word}-{number}")).await?;
    }
    Ok(())
}

/// transactions TOPIC ID: commit one, abort one, leave one open until the test writes a line, with a plain record after it.
async fn transactions(bootstrap: &str, topic: &str, id: &str) -> Outcome {
    let writer = transactional(bootstrap, id)?;
    fill(&writer, topic, "committed").await?;
    writer.commit_transaction(CALL)?;
    fill(&writer, topic, "aborted").await?;
    writer.abort_transaction(CALL)?;
    fill(&writer, topic, "open").await?;
    send(&producer(bootstrap, &[])?, topic, "plain").await?;
    say(json!({"open": true}));
    wait_for_word();
    writer.commit_transaction(CALL)?;
    say(json!({"open": false}));
    Ok(())
}

fn consumer(bootstrap: &str, group: &str, more: &[(&str, &str)]) -> Result<StreamConsumer, KafkaError> {
    let mut config = config(bootstrap);
    config.set("group.id", group).set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
    config.set("fetch.wait.max.ms", "20").set("topic.metadata.refresh.interval.ms", "200");
    for (name, value) in more {
        config.set(*name, *value);
    }
    config.create()
}

fn classic(session_ms: &'static str) -> [(&'static str, &'static str); 3] {
    [
        ("session.timeout.ms", session_ms),
        ("heartbeat.interval.ms", "100"),
        ("partition.assignment.strategy", "range"),
    ]
}

/// Records that came within that time. librdkafka retries after transient errors.
async fn poll(consumer: &StreamConsumer, time: Duration) -> Option<OwnedMessage> {
    match tokio::time::timeout(time, consumer.recv()).await {
        Ok(Ok(message)) => Some(message.detach()),
        Ok(Err(error)) => {
            eprintln!("polling: {error}");
            None
        }
        Err(_) => None,
    }
}

fn value_of(message: &OwnedMessage) -> String {
    String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()
}

/// The offsets after these records.
fn behind(records: &[OwnedMessage]) -> Result<TopicPartitionList, KafkaError> {
    let mut places = BTreeMap::new();
    for each in records {
        places.insert((each.topic().to_owned(), each.partition()), Offset::Offset(each.offset() + 1));
    }
    let mut list = TopicPartitionList::new();
    for ((topic, partition), offset) in places {
        list.add_partition_offset(&topic, partition, offset)?;
    }
    Ok(list)
}

/// read TOPIC GROUP ISOLATION COUNT: read at least COUNT records as a member of a group, and commit.
async fn read(bootstrap: &str, topic: &str, group: &str, isolation: &str, count: usize) -> Outcome {
    let mut more = classic("6000").to_vec();
    more.push(("isolation.level", isolation));
    let consumer = consumer(bootstrap, group, &more)?;
    consumer.subscribe(&[topic])?;
    let mut seen = Vec::new();
    loop {
        match poll(&consumer, QUIET).await {
            Some(message) => {
                say(json!({"value": value_of(&message), "offset": message.offset()}));
                seen.push(message);
            }
            None if seen.len() >= count => break,
            None => {}
        }
    }
    consumer.commit(&behind(&seen)?, CommitMode::Sync)?;
    Ok(())
}

struct Share {
    records: Vec<OwnedMessage>,
    member: ConsumerGroupMetadata,
}

/// A group member that processes records, with its transactional producer.
struct Worker {
    consumer: StreamConsumer,
    producer: FutureProducer,
    sink: String,
    doom: Doom,
    rounds: usize,
    aborted: usize,
    committed: usize,
}

impl Worker {
    fn new(consumer: StreamConsumer, producer: FutureProducer, sink: &str, doom: Doom) -> Self {
        Self { consumer, producer, sink: sink.into(), doom, rounds: 0, aborted: 0, committed: 0 }
    }

    /// Some records, with the group metadata at the first one: a rebalance may revoke its partition before the last one has
    /// come, and then the coordinator must refuse the offsets.
    async fn some(&self, most: usize) -> Option<Share> {
        let until = Instant::now() + POLL;
        let first = poll(&self.consumer, POLL).await?;
        let member = self.consumer.group_metadata().expect("it is a member");
        let mut records = vec![first];
        while records.len() < most {
            match poll(&self.consumer, until.saturating_duration_since(Instant::now())).await {
                Some(message) => records.push(message),
                None => break,
            }
        }
        Some(Share { records, member })
    }

    /// Processes the records in a transaction. Every third one is aborted, and its records are read again.
    async fn process(&mut self, share: &Share) -> Outcome {
        self.doom.step("poll");
        self.rounds += 1;
        match self.transact(share).await {
            Ok(true) => {
                self.doom.step("commit");
                self.committed += share.records.len();
                return Ok(());
            }
            Ok(false) => {}
            Err(KafkaError::Transaction(error)) if error.is_fatal() => return Err(error.into()),
            Err(error) => eprintln!("aborting: {error}"),
        }
        insist(|| self.producer.abort_transaction(CALL))?;
        self.aborted += 1;
        self.go_back()
    }

    async fn transact(&mut self, share: &Share) -> Result<bool, KafkaError> {
        self.producer.begin_transaction()?;
        for each in &share.records {
            send(&self.producer, &self.sink, &format!("done {}", value_of(each))).await?;
        }
        self.doom.step("send");
        let offsets = behind(&share.records)?;
        insist(|| self.producer.send_offsets_to_transaction(&offsets, &share.member, CALL))?;
        if self.rounds.is_multiple_of(3) {
            return Ok(false);
        }
        insist(|| self.producer.commit_transaction(CALL))?;
        Ok(true)
    }

    /// Seeks to the group's committed offsets: another member may have had a partition meanwhile.
    fn go_back(&self) -> Outcome {
        let mine = self.consumer.assignment()?;
        if mine.count() == 0 {
            return Ok(());
        }
        for place in self.consumer.committed_offsets(mine, CALL)?.elements() {
            let offset = match place.offset() {
                Offset::Offset(offset) => Offset::Offset(offset),
                _ => Offset::Beginning,
            };
            self.consumer.seek(place.topic(), place.partition(), offset, CALL)?;
        }
        Ok(())
    }
}

/// loop SOURCE SINK GROUP COUNT: consume, process, produce. It ends when it has committed COUNT records.
async fn counted_loop(bootstrap: &str, source: &str, sink: &str, group: &str, count: usize) -> Outcome {
    let mut more = classic("6000").to_vec();
    more.push(("isolation.level", "read_committed"));
    let consumer = consumer(bootstrap, group, &more)?;
    consumer.subscribe(&[source])?;
    let producer = transactional(bootstrap, &format!("{group}-loop"))?;
    let mut worker = Worker::new(consumer, producer, sink, Doom::new("never"));
    while worker.committed < count {
        if let Some(share) = worker.some(1).await {
            worker.process(&share).await?;
        }
    }
    say(json!({"done": worker.committed, "aborted": worker.aborted}));
    Ok(())
}

/// zombie TOPIC ID: say the errors that the first of two producers with the same id gets for each request that it tries.
async fn zombie(bootstrap: &str, topic: &str, id: &str) -> Outcome {
    for late in ["produce", "commit", "abort", "offsets"] {
        let first = transactional(bootstrap, id)?;
        fill(&first, topic, "zombie").await?;
        let second = transactional(bootstrap, id)?;
        fill(&second, topic, "successor").await?;
        let refused = match late {
            "produce" => send(&first, topic, "too late").await,
            "commit" => first.commit_transaction(CALL),
            "abort" => first.abort_transaction(CALL),
            _ => {
                let mut offsets = TopicPartitionList::new();
                offsets.add_partition_offset(topic, 0, Offset::Offset(1))?;
                let reader = consumer(bootstrap, "zombies", &[])?;
                let member = reader.group_metadata().expect("it has a group");
                first.send_offsets_to_transaction(&offsets, &member, CALL)
            }
        };
        say(json!({"late": late, "error": refused.as_ref().map_or_else(name_of, |()| "".into())}));
        second.commit_transaction(CALL)?;
    }
    Ok(())
}

/// member TOPIC GROUP: be a member until the test writes a line.
async fn member(bootstrap: &str, topic: &str, group: &str) -> Outcome {
    let consumer = consumer(bootstrap, group, &classic("6000"))?;
    stay(&consumer, topic, |assigned| {
        let mine: Vec<i32> = assigned.iter().map(|(_, partition)| *partition).collect();
        say(json!({"assigned": mine}));
    })
    .await
}

/// group-member, see the contract.
async fn group_member(bootstrap: &str, protocol: &str, group: &str, subscription: &str, instance: &str) -> Outcome {
    let consumer = consumer(bootstrap, group, &membership(protocol, instance))?;
    stay(&consumer, subscription, |assigned| {
        let mut mine: Vec<String> = assigned.iter().map(|(topic, each)| format!("{topic}-{each}")).collect();
        mine.sort();
        say(json!({"assigned": mine}));
    })
    .await
}

fn membership<'a>(protocol: &'a str, instance: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut more = vec![("group.protocol", protocol), ("isolation.level", "read_committed")];
    if protocol == "classic" {
        more.extend(classic(if instance == "-" { "1500" } else { "45000" }));
    }
    if instance != "-" {
        more.push(("group.instance.id", instance));
    }
    more
}

/// Be a member until the test writes a line, and say each change of the assignment.
async fn stay(
    consumer: &StreamConsumer, subscription: &str, tell: impl Fn(&[(String, i32)]),
) -> Outcome {
    let over = word();
    consumer.subscribe(&[subscription])?;
    let mut known: Vec<(String, i32)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        poll(consumer, POLL).await;
        let mut found: Vec<(String, i32)> = consumer
            .assignment()?
            .elements()
            .iter()
            .map(|each| (each.topic().to_owned(), each.partition()))
            .collect();
        found.sort();
        if found != known {
            tell(&found);
            known = found;
        }
    }
    Ok(())
}

/// group-loop, see the contract.
async fn group_loop(bootstrap: &str, protocol: &str, names: [&str; 4], step: &str) -> Result<(), Box<dyn Error>> {
    let [source, sink, group, id] = names;
    let over = word();
    let consumer = consumer(bootstrap, group, &membership(protocol, "-"))?;
    let producer = transactional(bootstrap, id)?;
    consumer.subscribe(&[source])?;
    let mut worker = Worker::new(consumer, producer, sink, Doom::new(step));
    while !over.load(Ordering::Relaxed) {
        if let Some(share) = worker.some(RECORDS).await {
            let before = worker.committed;
            worker.process(&share).await?;
            if worker.committed > before {
                say(json!({"committed": worker.committed}));
            }
        }
    }
    Ok(())
}
