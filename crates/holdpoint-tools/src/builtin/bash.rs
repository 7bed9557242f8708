//! `Bash`: a command, in the working directory. Gated, not sandboxed.
//!
//! What is done for it: a scrubbed environment, no standard input, no file descriptor but the three, a process
//! group of its own that is killed when the command ends, when the time is up, and when the call is cancelled or
//! dropped. What is not: anything that would keep an approved command from doing what this user can do. A process
//! that makes a session of its own (`setsid`) leaves the group and lives on; the call does not wait for it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use cap_std::fs::MetadataExt as _;
use rustix::process::Signal;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::workdir::Workdir;
use crate::process::Group;
use crate::{ToolError, ToolOutput};

pub const DESCRIPTION: &str = "Runs a command with bash in the working directory, without standard input, and \
    returns its output (standard output and errors, in order) and its exit status. Nothing stays: what it started \
    in the background is stopped when it ends. It is not confined to the working directory.";

/// How long a command may run when nobody says, and at most.
const DEFAULT_SECONDS: u64 = 120;
const SECONDS_MAX: u64 = 600;
/// The time of the whole call: the longest command, and its ending.
pub const LONGEST: Duration = Duration::from_secs(SECONDS_MAX + 10);
/// The longest command, in bytes: the kernel takes 128 KiB an argument.
const COMMAND_MAX_BYTES: usize = 96 * 1024;
/// How long the group has between the request to end and the end.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long output is awaited after the command itself has ended.
const LINGER: Duration = Duration::from_millis(500);

/// All that a command sees of the environment, beside `HOME`, which is the working directory. An allow list:
/// nothing of the server's - its token, its keys, its configuration - is there to be read.
const ENVIRONMENT: [(&str, &str); 2] = [("LANG", "C.UTF-8"), ("TERM", "dumb")];
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
const PLAIN_SHELL: &str = "/bin/sh";

/// Closes whatever descriptors came along, then becomes the command. Ours close themselves; those that this
/// process was given by its own parent do not. (A plain `sh` can only name those below 10.)
const LAUNCH: &str = r#"for fd in /dev/fd/*; do
  fd=${fd##*/}
  case $fd in
    0|1|2|*[!0-9]*) ;;
    ?) eval "exec $fd>&-" ;;
    *) if [ -n "$BASH_VERSION" ]; then eval "exec $fd>&-"; fi ;;
  esac
done
exec "$0" -c "$1""#;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// The command.
    command: String,
    /// How long it may run, in seconds; 120 when absent, at most 600.
    #[schemars(range(min = 1, max = 600))]
    timeout_seconds: Option<u64>,
}

pub async fn bash(
    workdir: &Workdir,
    arguments: Arguments,
    cancel: &CancellationToken,
) -> Result<ToolOutput, ToolError> {
    let Arguments { command, timeout_seconds } = arguments;
    if command.len() > COMMAND_MAX_BYTES || command.contains('\0') {
        let why = format!("a command is at most {COMMAND_MAX_BYTES} bytes, none of them NUL");
        return Err(ToolError::new("INVALID_ARGUMENTS", why).not_executed());
    }
    super::check_cancel(cancel)?;
    let seconds = timeout_seconds.unwrap_or(DEFAULT_SECONDS).clamp(1, SECONDS_MAX);
    let (mut group, mut output) = start(workdir, &command).map_err(|error| {
        ToolError::new("NOT_STARTED", format!("the command could not be started: {error}")).not_executed()
    })?;
    let mut capture = Capture::default();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let end = follow(&mut group, &mut output, &mut capture, deadline, cancel).await;
    let left_running = timeout(LINGER, drain(&mut output, &mut capture)).await.is_err();
    let status = group.finish().await;
    let mut text = capture.into_text();
    if left_running {
        text.push_str("[something was left running in the background: it was stopped, its output cut off]\n");
    }
    match end {
        End::TimedOut => Err(ToolError::new(
            "COMMAND_TIMED_OUT",
            format!(
                "the command was stopped after {seconds} s; what it did until then stays. Its output:\n{text}"
            ),
        )),
        End::Cancelled => Err(ToolError::new(
            "CANCELLED",
            format!("the command was stopped; what it did until then stays. Its output:\n{text}"),
        )),
        End::Exited => match status {
            Ok(status) => Ok(ToolOutput::text(format!("{text}[{}]", said(status)))),
            Err(error) => {
                let why = format!("how the command ended is not known: {error}. Its output:\n{text}");
                Err(ToolError::new("STATUS_UNKNOWN", why))
            }
        },
    }
}

fn said(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn start(workdir: &Workdir, command: &str) -> io::Result<(Group, pipe::Receiver)> {
    let root = workdir.path();
    let (named, held) = (std::fs::metadata(root)?, workdir.dir().dir_metadata()?);
    if (named.dev(), named.ino()) != (held.dev(), held.ino()) {
        return Err(io::Error::other("another directory stands in the place of the working directory"));
    }
    let shell = SHELLS.into_iter().find(|shell| Path::new(shell).exists()).unwrap_or(PLAIN_SHELL);
    // One pipe for both, so that what was written in order is read in order.
    let (reader, writer) = io::pipe()?;
    let output = pipe::Receiver::from_owned_fd(reader.into())?;
    let mut launcher = Command::new(shell);
    launcher
        .args(["-c", LAUNCH, shell, command])
        .current_dir(root)
        .env_clear()
        .envs(ENVIRONMENT)
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
        .env("HOME", root)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    Ok((Group::start(launcher)?, output))
}

enum End {
    Exited,
    TimedOut,
    Cancelled,
}

/// Reads until the command has ended, of itself or by us.
async fn follow(
    group: &mut Group,
    output: &mut pipe::Receiver,
    capture: &mut Capture,
    deadline: Instant,
    cancel: &CancellationToken,
) -> End {
    let end = tokio::select! {
        () = read_until_ended(group, output, capture) => return End::Exited,
        () = sleep_until(deadline) => End::TimedOut,
        () = cancel.cancelled() => End::Cancelled,
    };
    group.signal(Signal::TERM);
    if timeout(TERM_GRACE, read_until_ended(group, output, capture)).await.is_err() {
        group.signal(Signal::KILL);
        group.leader_ended().await;
    }
    // The leader may have ended at the first word while others of the group ignore it.
    group.signal(Signal::KILL);
    end
}

async fn read_until_ended(group: &mut Group, output: &mut pipe::Receiver, capture: &mut Capture) {
    tokio::select! {
        () = group.leader_ended() => {}
        // It may close its output and go on.
        () = drain(output, capture) => group.leader_ended().await,
    }
}

/// Reads to the end of the output: until the last process that could write to it is gone.
async fn drain(output: &mut pipe::Receiver, capture: &mut Capture) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        capture.push(&buffer[..length]);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::OnceLock;

    use super::super::capture::OUTPUT_MAX_BYTES;
    use super::super::testing::{Place, text};
    use super::*;

    async fn run(place: &Place, command: &str) -> String {
        text(run_for(place, command, None, &CancellationToken::new()).await.unwrap())
    }

    async fn run_for(
        place: &Place,
        command: &str,
        seconds: Option<u64>,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolError> {
        bash(&place.workdir, Arguments { command: command.into(), timeout_seconds: seconds }, cancel).await
    }

    /// Whether the process that wrote its number into this file is gone, or a zombie that nobody has reaped yet.
    async fn gone(place: &Place, file: &str) -> bool {
        let pid = place.content(file);
        for _ in 0..100 {
            match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
                Ok(stat) if !stat.rsplit_once(')').unwrap().1.starts_with(" Z") => {}
                Ok(_) | Err(_) => return true,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn exists(place: &Place, file: &str) {
        for _ in 0..500 {
            if fs::metadata(place.path(file)).is_ok_and(|metadata| metadata.len() > 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{file} never came");
    }

    #[tokio::test]
    async fn output_comes_in_order_with_the_exit_status() {
        let place = Place::new();
        let root = place.workdir.path().display().to_string();
        for (command, expected) in [
            ("echo one; echo two >&2; echo three", "one\ntwo\nthree\n[exit status 0]".to_owned()),
            ("printf x; exit 3", "x\n[exit status 3]".to_owned()),
            ("true", "[exit status 0]".to_owned()),
            ("kill -9 $$", "[killed by signal 9]".to_owned()),
            ("no-such-command-here 2>/dev/null", "[exit status 127]".to_owned()),
            ("pwd; echo $HOME", format!("{root}\n{root}\n[exit status 0]")),
            ("cat", "[exit status 0]".to_owned()),
            ("echo \"$0|$1|$#\"", "/bin/bash||0\n[exit status 0]".to_owned()),
            ("[[ a == a ]] && echo 'it is \"bash\"'", "it is \"bash\"\n[exit status 0]".to_owned()),
        ] {
            assert_eq!(run(&place, command).await, expected, "{command}");
        }
    }

    #[tokio::test]
    async fn nothing_of_our_environment_reaches_a_command() {
        // Cargo gives this process dozens of variables; a command sees the list and what bash itself sets.
        assert!(std::env::vars().count() > 8);
        let place = Place::new();
        let seen = run(&place, "env | cut -d= -f1 | sort | tr '\\n' ' '").await;
        assert_eq!(seen, "HOME LANG PATH PWD SHLVL TERM _ \n[exit status 0]");
        // Nor by the way through the process that started it: that one is the launcher, scrubbed as well.
        let own = run(&place, "tr '\\0' '\\n' < /proc/self/environ | grep -c CARGO").await;
        assert_eq!(own, "0\n[exit status 1]");
    }

    #[tokio::test]
    async fn no_descriptor_but_the_three_reaches_a_command() {
        static LEAKED: OnceLock<fs::File> = OnceLock::new();
        let place = Place::new();
        place.write("secret", "secret");
        // As a parent leaves one open: without the mark that closes it.
        let leaked = LEAKED.get_or_init(|| fs::File::open(place.path("secret")).unwrap());
        rustix::io::fcntl_setfd(leaked, rustix::io::FdFlags::empty()).unwrap();
        let look = "readlink /proc/$$/fd/*; true";
        let plain = Command::new("bash").args(["-c", look]).output().unwrap();
        let seen = run(&place, look).await;
        rustix::io::fcntl_setfd(leaked, rustix::io::FdFlags::CLOEXEC).unwrap();
        assert!(
            String::from_utf8_lossy(&plain.stdout).contains("/secret"),
            "nothing leaked in the first place"
        );
        assert!(!seen.contains("/secret") && seen.contains("pipe:"), "{seen}");
    }

    #[tokio::test]
    async fn a_child_that_keeps_the_output_open_holds_nobody_and_is_stopped() {
        let place = Place::new();
        let started = Instant::now();
        let said = run(&place, "sleep 300 & echo $! > pid; echo done").await;
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(said.starts_with("done\n[something was left running in the background"), "{said}");
        assert!(said.ends_with("[exit status 0]"));
        assert!(gone(&place, "pid").await);
        // One that has closed its output is stopped as well.
        let said = run(&place, "sleep 300 >/dev/null 2>&1 & echo $! > pid").await;
        assert_eq!(said, "[exit status 0]");
        assert!(gone(&place, "pid").await);
    }

    #[tokio::test]
    async fn what_a_background_process_says_right_away_is_not_lost() {
        let place = Place::new();
        assert_eq!(run(&place, "echo late > >(sleep 0.05; cat)").await, "late\n[exit status 0]");
    }

    #[tokio::test]
    async fn a_command_that_ignores_the_request_to_end_is_killed_with_all_of_its_group() {
        let place = Place::new();
        let command = "trap '' TERM; (trap '' TERM; echo $BASHPID > pid; sleep 300; sleep 300) & \
                       echo before; sleep 300; sleep 300";
        let started = Instant::now();
        let error = run_for(&place, command, Some(1), &CancellationToken::new()).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!(error.code, "COMMAND_TIMED_OUT");
        assert!(error.message.contains("after 1 s") && error.message.contains("before\n"), "{error}");
        assert!(!error.not_executed);
        assert!(gone(&place, "pid").await);
    }

    #[tokio::test]
    async fn a_grandchild_that_ignores_the_request_dies_with_the_leader_that_heeds_it() {
        let place = Place::new();
        let command = "(trap '' TERM; echo $BASHPID > pid; sleep 300; sleep 300) >/dev/null 2>&1 & wait";
        run_for(&place, command, Some(1), &CancellationToken::new()).await.unwrap_err();
        assert!(gone(&place, "pid").await);
    }

    #[tokio::test]
    async fn a_request_to_end_can_be_heeded_in_time() {
        let place = Place::new();
        let command = "trap 'echo tidied; exit 0' TERM; echo ready > ready; while :; do sleep 0.05; done";
        let cancel = CancellationToken::new();
        let stop = async {
            exists(&place, "ready").await;
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(run_for(&place, command, None, &cancel), stop);
        let error = ended.unwrap_err();
        assert_eq!(error.code, "CANCELLED");
        assert!(error.message.ends_with("tidied\n"), "{error}");
        let error = run_for(&place, "touch never", None, &cancel).await.unwrap_err();
        assert!(error.not_executed && !place.path("never").exists());
    }

    #[tokio::test]
    async fn a_dropped_call_leaves_nothing_running() {
        let place = Place::new();
        let cancel = CancellationToken::new();
        {
            let running = run_for(&place, "(echo $BASHPID > pid; sleep 300) & sleep 300", None, &cancel);
            tokio::select! {
                _ = running => panic!("it ended"),
                () = exists(&place, "pid") => {}
            }
        }
        assert!(gone(&place, "pid").await);
    }

    /// Documented, not prevented: a session of its own leaves the group. The call does not hang on it.
    #[tokio::test]
    async fn a_process_that_leaves_the_group_lives_on_and_holds_nobody() {
        let place = Place::new();
        let started = Instant::now();
        let said = run(
            &place,
            "setsid bash -c 'echo $$ > pid; sleep 300' & while [ ! -s pid ]; do sleep 0.01; done",
        )
        .await;
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(said.contains("left running in the background"), "{said}");
        let pid: i32 = place.content("pid").trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        assert!(rustix::process::test_kill_process(pid).is_ok());
        kill_session(pid);
    }

    fn kill_session(pid: rustix::process::Pid) {
        rustix::process::kill_process_group(pid, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn of_a_flood_the_beginning_and_the_end_are_kept() {
        let place = Place::new();
        let said = run(&place, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last").await;
        assert!(said.starts_with("first\nxxx") && said.ends_with("xxx\nlast\n[exit status 0]"));
        assert!(
            said.contains(" bytes left out here]") && said.len() < OUTPUT_MAX_BYTES + 200,
            "{}",
            said.len()
        );
        let error = run_for(&place, "yes", Some(1), &CancellationToken::new()).await.unwrap_err();
        assert!(error.message.len() < OUTPUT_MAX_BYTES + 300);
    }

    #[tokio::test]
    async fn a_command_that_cannot_be_given_to_a_shell_is_refused() {
        let place = Place::new();
        let none = CancellationToken::new();
        for command in ["echo a\0b".to_owned(), format!("#{}", "x".repeat(COMMAND_MAX_BYTES))] {
            assert!(run_for(&place, &command, None, &none).await.unwrap_err().not_executed);
        }
        let most = format!("#{}", "x".repeat(COMMAND_MAX_BYTES - 1));
        assert_eq!(run(&place, &most).await, "[exit status 0]");
    }

    #[tokio::test]
    async fn a_directory_that_was_exchanged_is_not_mistaken_for_the_working_directory() {
        let place = Place::new();
        fs::rename(place.path(""), place.outside("moved")).unwrap();
        fs::create_dir(place.path("")).unwrap();
        let error = run_for(&place, "touch here", None, &CancellationToken::new()).await.unwrap_err();
        assert!(error.code == "NOT_STARTED" && error.not_executed, "{error}");
    }
}
