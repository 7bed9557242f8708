//! A conversation in the terminal: what others decide meanwhile, and a connection that breaks.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::house::{House, Proposal};
use common::process::client;
use common::terminal::Terminal;
use common::until;

fn house() -> House {
    House::waiting_on(&Proposal::of("write_file", r#"{"path":"a.txt"}"#))
}

fn take_up(house: &House, url: &str) -> Terminal {
    let run = house.interaction()["runId"].as_str().unwrap().to_owned();
    Terminal::start(&["chat", "--run", &run, "--server", url], &house.variables())
}

#[test]
fn a_request_that_somebody_else_decides_is_closed_before_ones_eyes() {
    let house = house();
    let mut terminal = take_up(&house, &house.server.url);
    terminal.wait_for("Type one of: approve, edit, decline [WHY], feedback WHAT, later > ");
    let declined =
        client(&house.server, &["decline", &house.request.to_string(), "--reason", "I was faster"]);
    assert!(declined.status.success());
    terminal.wait_for("decided: decline by operator");
    terminal.wait_for("this request is closed; what you type does not count for it any more");
    terminal.wait_for("done: 2 rounds");
    terminal.wait_for("you (Enter to leave) > ");
    terminal.type_line("");
    assert_eq!(terminal.end().1, 0);
    assert_eq!(house.ran(), [""; 0]);
}

#[test]
fn words_that_are_none_decide_nothing_and_later_leaves_it_pending() {
    let house = house();
    let mut terminal = take_up(&house, &house.server.url);
    for typed in ["", "yes", "approve it", "feedback", "ran 1", "leave", "Approve"] {
        terminal.wait_for("later > ");
        terminal.type_line(typed);
        terminal.wait_for("nothing was decided");
    }
    terminal.wait_for("later > ");
    terminal.type_line("later");
    terminal.wait_for(&format!("it stays pending: holdpoint show {}", house.request));
    assert!(house.is_pending() && house.ran().is_empty());
    terminal.kill();
    assert!(house.is_pending(), "leaving is not declining");
}

/// Between the command and the server: cuts the first stream in the middle, and lets everything after it through.
fn cut_once(to: &str) -> (String, Arc<AtomicUsize>) {
    let to = to.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let url = format!("http://{own}");
    let streams = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&streams);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, to, own, count) = (client.unwrap(), to.clone(), own.clone(), Arc::clone(&count));
            std::thread::spawn(move || {
                let mut buffer = [0; 64 * 1024];
                let length = client.read(&mut buffer).unwrap();
                let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let is_stream = request.contains("/events HTTP/1.1");
                let nth = if is_stream { count.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
                if nth == 1 {
                    assert!(request.contains("last-event-id: "), "it says where it was: {request}");
                }
                // The server answers to its own address only.
                let request = request.replace(&own, &to);
                let mut server = TcpStream::connect(&to).unwrap();
                server.write_all(request.as_bytes()).unwrap();
                let mut seen = String::new();
                while let Ok(length @ 1..) = server.read(&mut buffer) {
                    if client.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                    seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
                    if nth == 0 && seen.contains("\"suspended\"") {
                        return;
                    }
                }
            });
        }
    });
    (url, streams)
}

#[test]
fn a_stream_that_breaks_off_is_taken_up_again_and_shows_nothing_twice() {
    let house = house();
    let (url, streams) = cut_once(&house.server.url);
    let mut terminal = take_up(&house, &url);
    terminal.wait_for("the stream broke off and is taken up again");
    until("the second stream", || (streams.load(Ordering::SeqCst) == 2).then_some(()));
    terminal.wait_for("later > ");
    terminal.type_line("approve");
    terminal.wait_for("decided: approve by operator");
    terminal.wait_for("you (Enter to leave) > ");
    terminal.type_line("");
    let (output, code) = terminal.end();
    assert_eq!(code, 0, "{output}");
    for once in ["wants  write_file", "decided: approve", "succeeded write_file", "┆ done", "done: 2 rounds"]
    {
        assert_eq!(output.matches(once).count(), 1, "{once}:\n{output}");
    }
    assert_eq!(house.ran(), [r#"{"path":"a.txt"}"#]);
}

#[test]
fn without_a_terminal_there_is_nothing_to_talk_on() {
    let house = house();
    let output = client(&house.server, &["chat"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        common::process::text(&output.stderr)
            .contains("hint: a program talks to an agent with `POST /chat/stream`")
    );
}
