//! The version of the control state that this process writes, and the newest that it reads.

use holdpoint_core::run::SNAPSHOT_VERSION;

/// The version. Built with `failpoints`, a process that is started with `HOLDPOINT_NEXT_VERSION` is of the one after this:
/// what two of different age do with each other's runs is tried with it.
pub(crate) fn snapshot_version() -> u32 {
    #[cfg(feature = "failpoints")]
    {
        use std::sync::LazyLock;
        static IS_NEXT: LazyLock<bool> =
            LazyLock::new(|| std::env::var_os("HOLDPOINT_NEXT_VERSION").is_some());
        SNAPSHOT_VERSION + u32::from(*IS_NEXT)
    }
    #[cfg(not(feature = "failpoints"))]
    SNAPSHOT_VERSION
}
