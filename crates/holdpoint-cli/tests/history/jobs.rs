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

/// A call that a model makes.
enum Call {
    /// A command that takes so many seconds.
    Bash(u64),
    /// Pays the order of the job, which others pay as well. When nobody decides, a preset is asked.
    Pay,
    /// Waits for a person also beyond its deadline.
    Note,
}

/// The calls of a job: one, three beside each other, or one that takes longer than some lives.
fn calls(job: u64) -> Vec<Call> {
    let commands = |seconds: &[u64]| seconds.iter().map(|seconds| Call::Bash(*seconds)).collect();
    match job % 8 {
        0 | 1 => commands(&[0]),
        2 => commands(&[0, 1, 0]),
        3 => commands(&[2]),
        4 => commands(&[0, 3]),
        5 | 6 => vec![Call::Pay],
        _ => vec![Call::Note],
    }
}

/// Whether what a job asks can be edited to another command.
pub fn is_of_commands(job: u64) -> bool {
    calls(job).iter().all(|call| matches!(call, Call::Bash(_)))
}

/// Jobs that pay the same order.
const JOBS_AN_ORDER: u64 = 32;

fn order(job: u64) -> String {
    format!("order-{}", job / JOBS_AN_ORDER)
}

/// The orders that the preset releases, of so many jobs.
pub fn released(count: u64) -> Vec<String> {
    (0..count).step_by(2 * JOBS_AN_ORDER as usize).map(order).collect()
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
            .map(|(at, call)| {
                let (name, arguments) = match call {
                    Call::Bash(seconds) => ("Bash", command(&mark(job, at), *seconds)),
                    Call::Pay => ("shop__pay", json!({ "order": order(job) })),
                    Call::Note => ("Write", json!({ "path": format!("note-{job}.txt"), "content": "noted" })),
                };
                format!("{{id: c{at}, name: {name}, arguments: {arguments}}}")
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
