//! The server as a program, for tests that are not written in Rust and for trials by hand.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program of the command line prints")]

use siltstone_test_server::fault::{NAMES, Rule};
use siltstone_test_server::pace::{Bandwidth, Latency, LatencyModel};
use siltstone_test_server::{Kind, ServerConfig, TestServer};
use std::io::{BufRead, Write};
use std::process::ExitCode;

const USAGE: &str = "\
Serve S3 on 127.0.0.1, in memory, for tests.

Usage: siltstone-test-server [OPTIONS]

Prints the URL, and then answers the lines of its input. It stops at the end of its input.

Options:
  --port N               Listen on this port (default: a free one)
  --bucket NAME          Create this bucket (repeatable; default: quarry)
  --key ID:SECRET        Accept only requests signed by this key (repeatable; default: all)
  --latency NAME         Take as long as `fixed` (25 and 28 ms), `standard`, or GET,PUT,LIST in ms
  --tail SHARE:MS        Let this share of the requests take this long
  --bandwidth N          Move this many bytes per second in each direction
  --stream-bandwidth N   Move this many bytes per second for each request
  --fault RULE           Add a rule to the fault plan (repeatable)
  --seed N               Seed of faults and latencies (default: 0)
  --clock-offset MS      Let the clock of the server differ from the machine's
  --write-interval MS    Refuse two writes of one key within this time
  --in-flight N          Serve at most this many requests at once; others wait
  --busy-above N         Refuse requests with 503 while this many are served
  --help                 Print this text

Lines of input:
  fault RULE             Add a rule to the fault plan
  heal                   End all faults
  log                    Print the counts, bytes and prices of the requests so far
  injected               Print how often each fault happened

A RULE is `FAULT[=VALUE] [on=KIND] [key=PATTERN] [skip=N] [count=N] [probability=P]`.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{USAGE}");
        println!("\nFaults:");
        for (name, value) in NAMES {
            println!("  {name:<22} {value}");
        }
        let kinds: Vec<&str> = Kind::all().map(Kind::name).collect();
        println!("\nKinds: {}", kinds.join(", "));
        return ExitCode::SUCCESS;
    }
    let served = configure(&arguments).and_then(|config| {
        let server = TestServer::start(config).map_err(|error| error.to_string())?;
        serve(&server).map_err(|error| error.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("siltstone-test-server: {error}");
            ExitCode::from(2)
        }
    }
}

fn configure(arguments: &[String]) -> Result<ServerConfig, String> {
    let mut config = ServerConfig::default();
    let mut buckets = Vec::new();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} needs a value; --help has the options", pair.concat()));
        };
        let wrong = || format!("{name} does not take `{value}`; --help has the options");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match name.as_str() {
            "--port" => config.port = value.parse().map_err(|_| wrong())?,
            "--bucket" => buckets.push(value.clone()),
            "--key" => {
                let (id, secret) = value.split_once(':').ok_or_else(wrong)?;
                config.keys.push((id.to_owned(), secret.to_owned()));
            }
            "--latency" => {
                let (share, tail) = (config.latency.tail_share, config.latency.tail);
                config.latency = latency(value).ok_or_else(wrong)?;
                (config.latency.tail_share, config.latency.tail) = (share, tail);
            }
            "--tail" => {
                let (share, millis) = value.split_once(':').ok_or_else(wrong)?;
                let share = share.parse().map_err(|_| wrong())?;
                let millis = millis.parse().map_err(|_| wrong())?;
                config.latency = config.latency.with_tail(share, millis);
            }
            "--bandwidth" => config.bandwidth.shared = Some(number()?),
            "--stream-bandwidth" => {
                config.bandwidth = Bandwidth { single: Some(number()?), ..config.bandwidth };
            }
            "--fault" => config.faults.push(Rule::parse(value)?),
            "--seed" => config.seed = number()?,
            "--clock-offset" => config.clock_offset_millis = value.parse().map_err(|_| wrong())?,
            "--write-interval" => {
                config.write_interval = Some(std::time::Duration::from_millis(number()?));
            }
            "--in-flight" => config.most_in_flight = value.parse().map_err(|_| wrong())?,
            "--busy-above" => config.busy_above = value.parse().map_err(|_| wrong())?,
            _ => return Err(format!("unknown option {name}; --help has the options")),
        }
    }
    if !buckets.is_empty() {
        config.buckets = buckets;
    }
    Ok(config)
}

fn latency(text: &str) -> Option<LatencyModel> {
    match text {
        "fixed" => Some(LatencyModel::fixed()),
        "standard" => Some(LatencyModel::standard()),
        _ => {
            let millis: Option<Vec<u64>> = text.split(',').map(|each| each.parse().ok()).collect();
            let [get, put, list] = <[u64; 3]>::try_from(millis?).ok()?.map(Latency::fixed);
            Some(LatencyModel { get, put, list, ..LatencyModel::default() })
        }
    }
}

fn serve(server: &TestServer) -> std::io::Result<()> {
    println!("{}", server.endpoint());
    std::io::stdout().flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("fault", rule) => match Rule::parse(rule) {
                Ok(rule) => server.inject(rule),
                Err(error) => println!("error: {error}"),
            },
            ("heal", _) => server.heal(),
            ("log", _) => print!("{}", server.log().table()),
            ("injected", _) => {
                for (fault, count) in server.injected() {
                    println!("{fault} {count}");
                }
            }
            _ => println!("error: `{line}` is not understood"),
        }
        println!("ok");
        std::io::stdout().flush()?;
    }
    Ok(())
}
