//! The proxy does what the tests that stand on it take for granted.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use holdpoint_faults::{Proxy, Way};

const SOON: Duration = Duration::from_millis(300);

/// Sends back whatever it is sent.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut reads = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut reads, &mut stream);
            });
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn say(stream: &mut TcpStream, word: &str) {
    stream.write_all(word.as_bytes()).unwrap();
}

fn hear(stream: &mut TcpStream, word: &str) {
    let mut heard = vec![0; word.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, word.as_bytes());
}

fn silence(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
}

#[test]
fn what_is_swallowed_is_late_and_not_lost() {
    let proxy = Proxy::to(echo());
    let mut client = connect(&proxy);
    say(&mut client, "one");
    hear(&mut client, "one");
    proxy.swallow();
    say(&mut client, "two");
    silence(&mut client);
    let mut new = connect(&proxy);
    say(&mut new, "three");
    silence(&mut new);
    proxy.open();
    hear(&mut client, "two");
    hear(&mut new, "three");
}

#[test]
fn one_direction_of_one_connection_can_be_closed() {
    let proxy = Proxy::to(echo());
    let (mut a, mut b) = (connect(&proxy), connect(&proxy));
    say(&mut a, "a");
    hear(&mut a, "a");
    say(&mut b, "b");
    hear(&mut b, "b");
    let links = proxy.links();
    let link = links.iter().find(|link| link.has_said("b")).unwrap();
    link.set(Way::Open, Way::Swallowed);
    say(&mut a, "still");
    hear(&mut a, "still");
    say(&mut b, "sent");
    silence(&mut b);
    link.set(Way::Open, Way::Open);
    hear(&mut b, "sent");
}

#[test]
fn what_is_delayed_arrives_later() {
    let proxy = Proxy::to(echo());
    let mut client = connect(&proxy);
    proxy.set(Way::Delayed(SOON), Way::Open);
    let began = Instant::now();
    say(&mut client, "slow");
    hear(&mut client, "slow");
    assert!(began.elapsed() >= SOON);
}

#[test]
fn connections_are_refused_and_cut() {
    let proxy = Proxy::to(echo());
    let mut old = connect(&proxy);
    say(&mut old, "old");
    hear(&mut old, "old");
    proxy.refuse();
    assert_eq!(connect(&proxy).read(&mut [0]).unwrap_or(0), 0, "a new one is closed");
    say(&mut old, "still");
    hear(&mut old, "still");
    proxy.cut();
    assert_eq!(old.read(&mut [0]).unwrap_or(0), 0);
    assert!(proxy.links().is_empty());
    proxy.open();
    let mut new = connect(&proxy);
    say(&mut new, "new");
    hear(&mut new, "new");
}
