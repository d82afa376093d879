//! Small products of many threads on many streams, every one of them checked, while device memory stays as it is: on
//! one plan that all share, then on several.
//!
//! ```console
//! $ cargo run --release -p windrow-examples --example stress_streams -- --products 1000000
//! ```
#![expect(clippy::print_stdout, reason = "an example prints")]

mod common;

use std::process::ExitCode;

use clap::Parser;
use windrow::{Device, DeviceSelector};

use common::stress::{Load, Seen, run};

/// Small products of many threads on many streams.
#[derive(Debug, Parser)]
struct Options {
    /// Products with one plan, and again with several.
    #[arg(long, default_value_t = 2000)]
    products: usize,
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Streams of each thread.
    #[arg(long, default_value_t = 4)]
    streams: usize,
    /// `cuda:0` or `cpu`; the first GPU if there is one unless told.
    #[arg(long, default_value = "best")]
    device: DeviceSelector,
    /// Print a line of JSON for each of the two.
    #[arg(long)]
    json: bool,
}

fn print(options: &Options, device: &Device, plans: &str, seen: &Seen) {
    let Seen { products, seconds, memory } = *seen;
    let flat = seen.is_flat();
    let free = memory.map(|memory| memory.free);
    let held = memory.map(|memory| memory.held);
    if options.json {
        let line = serde_json::json!({
            "plans": plans, "device": device.to_string(), "threads": options.threads, "streams": options.streams,
            "products": products, "wrong": 0, "seconds": seconds, "free_bytes": free, "held_bytes": held,
            "flat": flat,
        });
        return println!("{line}");
    }
    let rate = products as f64 / seconds;
    println!(
        "{plans} on {device}: {products} products in {seconds:.2} s, {rate:.0} a second, all of them right"
    );
    for (when, at) in ["before", "after the first", "after 10 %", "at the end"].into_iter().zip(memory) {
        let free = at.free.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
        println!("  {when:15}  {free:>13} bytes free, {:>9} held for plans", at.held);
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let work = || -> common::Result<bool> {
        let device = options.device.open()?;
        let mut flat = true;
        for (plans, several) in [("one plan", false), ("several plans", true)] {
            let Options { threads, streams, products, .. } = options;
            let seen = run(&device, Load { threads, streams, products, several })?;
            print(&options, &device, plans, &seen);
            flat &= seen.is_flat();
        }
        Ok(flat)
    };
    match work() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: memory was not given back, or another process took some");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
