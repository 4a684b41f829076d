//! Drives v_queue for ../../native.py: append frames from the input, read all of a queue, show it as frames.
//!
//! A frame is a value behind its length, a little-endian u32. What is printed are the nanoseconds between opening and
//! closing. Any failure ends the program with the reason.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Read, Write};
use std::time::Instant;

use v_queue::consumer::Consumer;
use v_queue::queue::Queue;
use v_queue::record::{Mode, MsgType};

const QUEUE: &str = "log";
const USAGE: &str = "usage: program append DIR BATCH durable|written | read DIR | show DIR";

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["append", directory, batch, level] => {
            let batch = batch.parse().map_err(io::Error::other)?;
            println!("{}", append(directory, &frames()?, batch, level == "durable")?);
        }
        ["read", directory] => {
            let mut consumer = open(directory)?;
            let begun = Instant::now();
            each(&mut consumer, |value| {
                black_box(value);
                Ok(())
            })?;
            println!("{}", begun.elapsed().as_nanos());
        }
        ["show", directory] => {
            let mut out = BufWriter::new(io::stdout().lock());
            each(&mut open(directory)?, |value| {
                out.write_all(&(value.len() as u32).to_le_bytes())?;
                out.write_all(value)
            })?;
            out.flush()?;
        }
        _ => return Err(io::Error::other(USAGE)),
    }
    Ok(())
}

fn append(directory: &str, values: &[Vec<u8>], batch: usize, durable: bool) -> io::Result<u128> {
    let mut queue = Queue::new(directory, QUEUE, Mode::ReadWrite).map_err(failed)?;
    let info = File::open(format!("{directory}/{QUEUE}-{}/{QUEUE}_info_push", queue.id))?;
    let begun = Instant::now();
    for some in values.chunks(batch) {
        for value in some {
            queue.push(value, MsgType::Object).map_err(failed)?;
        }
        if durable {
            queue.ff_queue.sync_data()?;
            info.sync_data()?;
        }
    }
    Ok(begun.elapsed().as_nanos())
}

fn open(directory: &str) -> io::Result<Consumer> {
    Consumer::new(directory, "reader", QUEUE).map_err(failed)
}

fn each(consumer: &mut Consumer, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    loop {
        let ready = consumer.get_batch_size();
        if ready == 0 {
            return Ok(());
        }
        for _ in 0..ready {
            if !consumer.pop_header() {
                return Err(io::Error::other("a header could not be read"));
            }
            let mut value = vec![0; consumer.record_len()];
            consumer.pop_body(&mut value).map_err(failed)?;
            take(&value)?;
        }
    }
}

fn frames() -> io::Result<Vec<Vec<u8>>> {
    let mut given = Vec::new();
    io::stdin().lock().read_to_end(&mut given)?;
    let (mut values, mut rest) = (Vec::new(), &given[..]);
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let (value, after) = more
            .split_at_checked(u32::from_le_bytes(*length) as usize)
            .ok_or_else(|| io::Error::other("the input ends inside a frame"))?;
        values.push(value.to_vec());
        rest = after;
    }
    Ok(values)
}

fn failed(error: v_queue::record::ErrorQueue) -> io::Error {
    io::Error::other(error.as_str())
}
