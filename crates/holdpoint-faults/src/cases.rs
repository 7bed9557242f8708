//! A runner for tests that wait more than they work: more of them at once than the machine has processors, on threads that
//! bear their names.

use std::collections::VecDeque;
use std::sync::Mutex;

/// A test and its name.
pub type Case = (&'static str, fn());

/// The cases of these paths, by their paths.
#[macro_export]
macro_rules! cases {
    ($($(#[$when:meta])* $case:path),* $(,)?) => {
        &[$($(#[$when])* (stringify!($case), $case as fn())),*]
    };
}

/// Runs the cases that the arguments of this process ask for, so many at once, and ends the process. Understands what
/// `cargo test` is usually told: names to run, `--skip NAME`, `--exact`, `--list`.
pub fn run_cases(cases: &'static [Case], at_once: usize) -> ! {
    let (mut filters, mut skipped, mut exact) = (Vec::new(), Vec::new(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" => {
                cases.iter().for_each(|(name, _)| println!("{name}: test"));
                std::process::exit(0);
            }
            "--exact" => exact = true,
            "--skip" => skipped.extend(arguments.next()),
            option if option.starts_with('-') => {}
            _ => filters.push(argument),
        }
    }
    let names = |word: &String, name: &str| if exact { name == word } else { name.contains(word.as_str()) };
    let wanted = |name: &str| {
        (filters.is_empty() || filters.iter().any(|filter| names(filter, name)))
            && !skipped.iter().any(|skip| names(skip, name))
    };
    let waiting = Mutex::new(cases.iter().filter(|(name, _)| wanted(name)).collect::<VecDeque<_>>());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some((name, case)) = waiting.lock().unwrap().pop_front() else { return };
                    // A thread of its own: a panic says which case it was.
                    let passed =
                        std::thread::Builder::new().name((*name).into()).spawn(*case).unwrap().join().is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    if !failed.is_empty() {
        println!("\n{} failed: {}", failed.len(), failed.join(", "));
    }
    std::process::exit(i32::from(!failed.is_empty()));
}
