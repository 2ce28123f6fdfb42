//! Runs the orders of tests/clients/contract.py with the crate rskafka, as far as it supports them: it has neither groups
//! nor transactions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use chrono::{TimeZone, Utc};
use odradek_clients::{Outcome, PARTITIONS, RECORDS_A_CODEC, say};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::json;

const CALL_MS: i32 = 60_000;
const WAIT_MS: i32 = 20;
const BYTES: std::ops::Range<i32> = 1..1_000_000;

#[tokio::main]
async fn main() -> Outcome {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["admin", bootstrap, topic] => admin(&client(bootstrap).await?, topic).await,
        ["codecs", bootstrap, topic] => codecs(&client(bootstrap).await?, topic).await,
        ["read", bootstrap, topic, from] => read(&client(bootstrap).await?, topic, from.parse()?).await,
        ["write", bootstrap, topic, count] => write(&client(bootstrap).await?, topic, count.parse()?).await,
        ["cut", bootstrap, topic, before] => cut(&client(bootstrap).await?, topic, before.parse()?).await,
        _ => Err("usage: rskafka ORDER BOOTSTRAP [ARGUMENT...]".into()),
    }
}

async fn client(bootstrap: &str) -> Result<Client, Error> {
    ClientBuilder::new(vec![bootstrap.to_owned()]).build().await
}

async fn partition(client: &Client, topic: &str) -> Result<PartitionClient, Error> {
    client.partition_client(topic, 0, UnknownTopicHandling::Error).await
}

fn record(value: String) -> Record {
    Record {
        key: Some(b"key".to_vec()),
        value: Some(value.into_bytes()),
        headers: BTreeMap::from([("header".to_owned(), b"kept".to_vec())]),
        timestamp: Utc.timestamp_millis_opt(1_234_567).unwrap(),
    }
}

/// admin TOPIC: create it, create it again, describe it, delete it.
async fn admin(client: &Client, topic: &str) -> Outcome {
    let controller = client.controller_client()?;
    controller.create_topic(topic, PARTITIONS, 1, CALL_MS).await?;
    let again = match controller.create_topic(topic, PARTITIONS, 1, CALL_MS).await {
        Err(Error::ServerError { protocol_error: ProtocolError::TopicAlreadyExists, .. }) => "TopicAlreadyExists".into(),
        other => format!("{other:?}"),
    };
    say(json!({"again": again}));
    let found = client.list_topics().await?.into_iter().find(|each| each.name == topic).expect("it was made");
    say(json!({"partitions": found.partitions.len()}));
    controller.delete_topic(topic, CALL_MS).await?;
    say(json!({"left": client.list_topics().await?.iter().any(|each| each.name == topic)}));
    Ok(())
}

/// codecs TOPIC: produce a batch with each codec.
async fn codecs(client: &Client, topic: &str) -> Outcome {
    let partition = partition(client, topic).await?;
    for (name, codec) in [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
    ] {
        let records: Vec<Record> =
            (0..RECORDS_A_CODEC).map(|number| record(format!("{name} {number} of many that are alike"))).collect();
        let offsets = partition.produce(records, codec).await?;
        say(json!({"codec": name, "offset": offsets[0], "count": offsets.len()}));
    }
    Ok(())
}

/// read TOPIC FROM: read all records from this offset to the end of partition 0, to which another client may append.
async fn read(client: &Client, topic: &str, from: i64) -> Outcome {
    let partition = partition(client, topic).await?;
    let (mut next, end) = (from, partition.get_offset(OffsetAt::Latest).await?);
    while next < end {
        let (found, _) = partition.fetch_records(next, BYTES, WAIT_MS).await?;
        for each in found {
            let value = String::from_utf8(each.record.value.unwrap_or_default())?;
            say(json!({"value": value, "offset": each.offset, "headers": each.record.headers.len()}));
            next = each.offset + 1;
        }
    }
    Ok(())
}

/// write TOPIC COUNT: write COUNT records, each after the acknowledgement of the last; a failed write is repeated.
async fn write(client: &Client, topic: &str, count: usize) -> Outcome {
    let partition = partition(client, topic).await?;
    for number in 0..count {
        let mut outcome = ControlFlow::Continue(());
        while outcome.is_continue() {
            match partition.produce(vec![record(format!("order-{number}"))], Compression::NoCompression).await {
                Ok(offsets) => {
                    say(json!({"written": number, "offset": offsets[0]}));
                    outcome = ControlFlow::Break(());
                }
                Err(error) => {
                    eprintln!("again: {error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
    Ok(())
}

/// cut TOPIC BEFORE: delete the records before this offset, and say the log start and end offsets.
async fn cut(client: &Client, topic: &str, before: i64) -> Outcome {
    let partition = partition(client, topic).await?;
    partition.delete_records(before, CALL_MS).await?;
    say(json!({
        "earliest": partition.get_offset(OffsetAt::Earliest).await?,
        "latest": partition.get_offset(OffsetAt::Latest).await?,
    }));
    Ok(())
}
