//! The power fails. What the disk had been told to keep is there; of what was only written any part may be, or none.
//!
//! A process writes and decides under `strace`, which writes down every byte it wrote, every sync, and every acknowledgement, in
//! order. From that record the files are made again as they could be after a cut at any acknowledgement: everything up to the last
//! sync of each file, and of the writes since then some, in pieces of a sector, as a seed says. (What is done to folders - a
//! file made or removed - is taken to be done, as file systems with a journal of their own have it by the next sync.)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Acknowledged, acknowledged, again, check, killed_by};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

#[derive(Debug)]
enum Act {
    Write {
        file: PathBuf,
        at: usize,
        bytes: Vec<u8>,
    },
    Cut {
        file: PathBuf,
        length: usize,
    },
    Sync {
        file: PathBuf,
    },
    Remove {
        file: PathBuf,
    },
    /// A line to whoever waits for it.
    Say(String),
}

pub fn what_was_acknowledged_survives_the_loss_of_whatever_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, record) = (dir.path().join("holdpoint.db"), dir.path().join("record"));
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-xx", "-s", "1000000", "-o"]).arg(&record);
    command.args(["-e", "trace=write,pwrite64,fsync,fdatasync,ftruncate,unlink", "--"]);
    // Whoever kills `strace` lets go of what it watches: the process itself is what is killed.
    let number = dir.path().join("number");
    command.args(["sh", "-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(&number);
    let inner = again("as-writer", &path);
    command.arg(inner.get_program()).args(inner.get_args()).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("`apt-get install strace` installs what this needs");
    killed_by(child, 14, |_| {
        let number = std::fs::read_to_string(&number).unwrap();
        assert!(Command::new("kill").args(["-9", number.trim()]).status().unwrap().success());
    });
    let record = std::fs::read_to_string(&record).unwrap();
    let mut syncing = BTreeMap::new();
    let acts: Vec<Act> = record.lines().filter_map(|line| act(line, dir.path(), &mut syncing)).collect();
    let syncs = acts.iter().filter(|act| matches!(act, Act::Sync { .. })).count();
    let cuts: Vec<usize> = (0..acts.len()).filter(|at| matches!(acts[*at], Act::Say(_))).collect();
    assert!(cuts.len() >= 14 && syncs >= cuts.len(), "{} acknowledgements, {syncs} syncs", cuts.len());
    for (seed, cut) in cuts.iter().enumerate() {
        // Right after the acknowledgement, and in the middle of what follows.
        for more in [1, 4, 9] {
            let until = (cut + more).min(acts.len());
            let said: Vec<Acknowledged> = acknowledged(acts[..until].iter().filter_map(|act| match act {
                Act::Say(line) => Some(line.as_str()),
                Act::Write { .. } | Act::Cut { .. } | Act::Sync { .. } | Act::Remove { .. } => None,
            }));
            let after = tempfile::tempdir().unwrap();
            for (name, bytes) in disk_after(&acts[..until], (seed * 31 + more) as u64) {
                std::fs::write(after.path().join(name.file_name().unwrap()), bytes).unwrap();
            }
            check(&after.path().join("holdpoint.db"), &said);
        }
    }
    println!("power cut at {} places of {} acts, {syncs} of them syncs", cuts.len() * 3, acts.len());
}

/// A line of `strace`, where it is about files of ours or about what is said. A call that another thread interrupted in the record
/// has its arguments in its first line; a sync counts from its end, so by thread it is kept which file is being synced.
fn act(line: &str, dir: &Path, syncing: &mut BTreeMap<String, PathBuf>) -> Option<Act> {
    let (thread, call) = line.split_once(' ')?;
    let call = call.trim_start();
    if let Some(rest) = call.strip_prefix("<... ") {
        let is_sync = rest.starts_with("fsync") || rest.starts_with("fdatasync");
        return syncing.remove(thread).filter(|_| is_sync).map(|file| Act::Sync { file });
    }
    let (name, arguments) = call.split_once('(')?;
    if name == "unlink" {
        return Some(Act::Remove { file: String::from_utf8(bytes_of(arguments)?).ok()?.into() });
    }
    let (descriptor, rest) = arguments.split_once('<')?;
    let (file, rest) = rest.split_once('>')?;
    let file = PathBuf::from(file_name(file));
    if name == "write" {
        let text = String::from_utf8(bytes_of(rest)?).ok()?;
        return (descriptor == "1").then_some(Act::Say(text));
    }
    // The file for people that says who has the database is not of it, and the one that processes share is memory.
    if !file.starts_with(dir) || ["lock", "shm"].iter().any(|end| file.to_string_lossy().ends_with(end)) {
        return None;
    }
    let after = rest.rsplit_once('"').map_or(rest, |(_, after)| after);
    let mut numbers = after.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    match name {
        "pwrite64" => Some(Act::Write { file, at: numbers.nth(1)?, bytes: bytes_of(rest)? }),
        "ftruncate" => Some(Act::Cut { file, length: numbers.next()? }),
        "fsync" | "fdatasync" if rest.contains("unfinished") => {
            syncing.insert(thread.to_owned(), file);
            None
        }
        "fsync" | "fdatasync" => Some(Act::Sync { file }),
        _ => None,
    }
}

/// With `-xx` names are in hexadecimal, too.
fn file_name(text: &str) -> String {
    if text.starts_with("\\x") { String::from_utf8(unescaped(text)).unwrap() } else { text.to_owned() }
}

fn bytes_of(rest: &str) -> Option<Vec<u8>> {
    let text = rest.split('"').nth(1)?;
    Some(unescaped(text))
}

fn unescaped(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|digits| u8::from_str_radix(&digits[..2], 16).unwrap()).collect()
}

/// The files as they can be: all that was synced, and some of the rest.
fn disk_after(acts: &[Act], seed: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut synced: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut since: BTreeMap<PathBuf, Vec<&Act>> = BTreeMap::new();
    for act in acts {
        match act {
            Act::Write { file, .. } | Act::Cut { file, .. } => {
                synced.entry(file.clone()).or_default();
                since.entry(file.clone()).or_default().push(act);
            }
            Act::Sync { file } => {
                let disk = synced.entry(file.clone()).or_default();
                since.remove(file).into_iter().flatten().for_each(|act| do_all(disk, act));
            }
            Act::Remove { file } => {
                synced.remove(file);
                since.remove(file);
            }
            Act::Say(_) => {}
        }
    }
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (file, acts) in since {
        let disk = synced.entry(file).or_default();
        for act in acts {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            do_some(disk, act, dice >> 32);
        }
    }
    synced
}

fn do_all(disk: &mut Vec<u8>, act: &Act) {
    do_some(disk, act, u64::MAX);
}

/// Those sectors of a write that the bits of `which` say.
fn do_some(disk: &mut Vec<u8>, act: &Act, which: u64) {
    match act {
        Act::Write { at, bytes, .. } => {
            for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                if which >> (n % 32) & 1 == 1 {
                    let from = at + n * SECTOR;
                    if disk.len() < from + sector.len() {
                        disk.resize(from + sector.len(), 0);
                    }
                    disk[from..from + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Act::Cut { length, .. } if which & 1 == 1 => disk.resize(*length, 0),
        Act::Cut { .. } | Act::Sync { .. } | Act::Remove { .. } | Act::Say(_) => {}
    }
}
