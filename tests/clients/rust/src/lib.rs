//! Functions of all programs: one order per run, one line of JSON for each event (tests/clients/contract.py).

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub type Outcome = Result<(), Box<dyn Error>>;

pub const PARTITIONS: i32 = 3;
pub const RECORDS_A_CODEC: usize = 200;

pub fn say(what: serde_json::Value) {
    let mut out = stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).expect("the test listens");
}

/// Returns when the test writes a line to our standard input, or closes it.
pub fn wait_for_word() {
    let mut line = String::new();
    stdin().read_line(&mut line).expect("the test speaks");
}

/// A flag that becomes true when the test writes a line.
pub fn word() -> Arc<AtomicBool> {
    let said = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&said);
    thread::spawn(move || {
        wait_for_word();
        heard.store(true, Ordering::Relaxed);
    });
    said
}

/// Says "here" at the step at which the program is to be killed, and then waits.
pub struct Doom {
    name: String,
    left: u32,
}

impl Doom {
    pub fn new(fatal: &str) -> Self {
        let (name, passages) = fatal.split_once(':').unwrap_or((fatal, "0"));
        Self { name: name.into(), left: passages.parse().unwrap_or(0) }
    }

    pub fn step(&mut self, reached: &str) {
        if reached != self.name || self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            say(serde_json::json!({"here": reached}));
            loop {
                thread::park();
            }
        }
    }
}
