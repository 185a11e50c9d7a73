//! The program.

use siltstone_test_server::client::Client;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_siltstone-test-server");

#[test]
fn the_program_serves_until_its_input_ends() {
    let mut child = Command::new(PROGRAM)
        .args(["--bucket", "shed", "--fault", "refuse=503:SlowDown on=put count=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let endpoint = lines.next().unwrap().unwrap();
    let address = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    let mut client = Client::connect(address).unwrap();
    let statuses = [(); 2].map(|()| client.send("PUT", "/shed/a", &[], b"1").unwrap().status);
    assert_eq!(statuses, [503, 200]);
    let mut ask = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let answer = lines.by_ref().map(Result::unwrap).take_while(|line| line != "ok");
        answer.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(ask("injected"), "refuse 1");
    let log = ask("log");
    assert!(log.contains("put") && log.contains("dollars"), "{log}");
    assert_eq!(ask("fault reset-before on=get"), "");
    client.send("GET", "/shed/a", &[], b"").unwrap_err();
    assert_eq!(ask("heal"), "");
    assert!(ask("no such line").starts_with("error"));
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_program_explains_itself() {
    let help = Command::new(PROGRAM).arg("--help").output().unwrap();
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success() && text.contains("--bandwidth") && text.contains("stale-list"));
    for wrong in [vec!["--no-such", "1"], vec!["--port"], vec!["--fault", "none"]] {
        let refused = Command::new(PROGRAM).args(&wrong).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(!refused.stderr.is_empty());
    }
}
