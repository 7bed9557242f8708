//! A process group: started, watched, and ended as a whole.
//!
//! The danger in killing by number is that the number may be somebody else's by then. A process's id, and the
//! group's, which is the same, stays taken until the leader is *reaped*. So the leader's end is watched without
//! reaping it (`WNOWAIT`), the group is killed, and only then is the leader reaped; in between, and before, the
//! number is ours. After that nobody signals any more.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::oneshot;

/// A running group. Dropping it kills all of it.
pub struct Group {
    /// The group's number, until the leader is reaped.
    number: Arc<Mutex<Option<Pid>>>,
    leader_ended: oneshot::Receiver<()>,
    reap: Option<mpsc::Sender<()>>,
    status: oneshot::Receiver<io::Result<ExitStatus>>,
}

impl Group {
    /// Starts the command as the leader of a group of its own.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        // The command holds our ends of the child's pipes; while it lives, they never end.
        drop(command);
        let number = Arc::new(Mutex::new(Some(Pid::from_child(&child))));
        let (ended_tx, leader_ended) = oneshot::channel();
        let (reap, reap_rx) = mpsc::channel();
        let (status_tx, status) = oneshot::channel();
        let group = Self { number: number.clone(), leader_ended, reap: Some(reap), status };
        thread::Builder::new()
            .name("holdpoint-wait".into())
            .spawn(move || watch(child, &number, ended_tx, &reap_rx, status_tx))?;
        Ok(group)
    }

    /// Waits until the leader has ended. Others of the group may go on.
    pub async fn leader_ended(&mut self) {
        // An error says that it ended before, or that the watcher is gone; there is nothing to wait for either way.
        if !self.leader_ended.is_terminated() {
            let _ = (&mut self.leader_ended).await;
        }
    }

    /// Sends a signal to every process of the group.
    pub fn signal(&self, signal: Signal) {
        if let Some(number) = *self.number.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error says that nobody is left.
            let _ = kill_process_group(number, signal);
        }
    }

    /// Kills what is left of the group, once its leader has ended, and says how the leader ended.
    pub async fn finish(mut self) -> io::Result<ExitStatus> {
        self.reap = None;
        (&mut self.status)
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the process was not watched to its end")))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

fn watch(
    mut child: Child,
    number: &Mutex<Option<Pid>>,
    ended: oneshot::Sender<()>,
    reap: &mpsc::Receiver<()>,
    status: oneshot::Sender<io::Result<ExitStatus>>,
) {
    let pid = Pid::from_child(&child);
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    let _ = ended.send(());
    // Until the sender is dropped: with `finish`, or with the group.
    let _ = reap.recv();
    let mut number = number.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = number.take() {
        let _ = kill_process_group(number, Signal::KILL);
    }
    let _ = status.send(child.wait());
}
