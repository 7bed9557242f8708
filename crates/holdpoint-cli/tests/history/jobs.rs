//! What the model of each run does. A job is one run; its number stands in the message, and in every command.

use serde_json::{Value, json};

/// Jobs that a history of so many seconds may use up.
pub fn count(seconds: u64) -> u64 {
    (seconds * 8).clamp(100, 2_000)
}

/// The message that starts a job.
pub fn message(job: u64) -> String {
    format!("job {job}.")
}

/// A command that leaves this mark each time it runs.
pub fn command(mark: &str, seconds: u64) -> Value {
    let wait = if seconds > 0 { format!("; sleep {seconds}") } else { String::new() };
    json!({ "command": format!("echo {mark} >> log.txt{wait}") })
}

/// The calls of a job: one, three beside each other, or one that takes longer than some lives.
fn calls(job: u64) -> Vec<u64> {
    match job % 5 {
        0 | 1 => vec![0],
        2 => vec![0, 1, 0],
        3 => vec![2],
        _ => vec![0, 3],
    }
}

pub fn mark(job: u64, call: usize) -> String {
    format!("job-{job}-call-{call}")
}

/// The script of the model, for all jobs.
pub fn script(count: u64) -> String {
    let mut script = String::from("rules:\n  - when: {has_tool_result: true}\n    answer: {text: done}\n");
    for job in 0..count {
        let calls: Vec<String> = calls(job)
            .iter()
            .enumerate()
            .map(|(at, seconds)| {
                format!("{{id: c{at}, name: Bash, arguments: {}}}", command(&mark(job, at), *seconds))
            })
            .collect();
        script.push_str(&format!(
            "  - when: {{user_contains: 'job {job}.'}}\n    answer: {{calls: [{}], delay_ms: {}}}\n",
            calls.join(", "),
            if job % 7 == 0 { 400 } else { 0 }
        ));
    }
    script
}
