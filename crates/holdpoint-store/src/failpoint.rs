//! Named places where a test can have the process die.

/// Dies here, as by `kill -9`, when the process was started with `HOLDPOINT_FAIL=<name>:kill`; `<name>:kill:<n>` dies
/// at the n-th time. Several are separated by commas. Does nothing unless the crate is built with `failpoints`.
#[inline]
pub fn failpoint(name: &str) {
    #[cfg(feature = "failpoints")]
    armed::pass(name);
    #[cfg(not(feature = "failpoints"))]
    let _ = name;
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Point {
        name: String,
        left: AtomicU32,
    }

    fn points() -> &'static [Point] {
        static POINTS: OnceLock<Vec<Point>> = OnceLock::new();
        POINTS.get_or_init(|| {
            let text = std::env::var("HOLDPOINT_FAIL").unwrap_or_default();
            text.split(',').filter_map(parse).collect()
        })
    }

    fn parse(text: &str) -> Option<Point> {
        let mut parts = text.trim().split(':');
        let (name, "kill") = (parts.next()?, parts.next()?) else { return None };
        let left = parts.next().and_then(|n| n.parse().ok()).unwrap_or(1);
        Some(Point { name: name.to_owned(), left: AtomicU32::new(left) })
    }

    pub(super) fn pass(name: &str) {
        for point in points().iter().filter(|point| point.name == name) {
            if point.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                die(name);
            }
        }
    }

    /// Nothing is flushed, no destructor runs. `abort` is what is left to a program without unsafe code, where there
    /// is no `kill`.
    fn die(name: &str) -> ! {
        eprintln!("failpoint {name}: killed");
        let _ = std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        std::process::abort();
    }
}
