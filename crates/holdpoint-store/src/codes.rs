//! Our words as the small numbers that the databases keep. Never renumbered.

use holdpoint_core::decision::CancelKind;
use holdpoint_protocol::{InteractionKind, InteractionStatus, OnTimeout, RunStatus};

use crate::{Error, Result};

macro_rules! codes {
    ($(#[$doc:meta])* $module:ident, $type:ty, [$($code:literal = ($($variant:tt)+)),* $(,)?]) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use super::*;

            pub(crate) fn code(value: $type) -> i64 {
                match value { $($($variant)+ => $code,)* }
            }

            pub(crate) fn read(code: i64) -> Result<$type> {
                match code {
                    $($code => Ok($($variant)+),)*
                    other => Err(Error::Corrupt(format!(concat!("an unknown ", stringify!($module), ": {}"), other))),
                }
            }

            #[cfg(test)]
            #[test]
            fn every_code_is_read_as_what_it_was_written_for() {
                for code in [$($code),*] {
                    assert_eq!(super::$module::code(read(code).unwrap()), code);
                }
                assert!(read(99).is_err());
            }
        }
    };
}

codes!(
    /// How a run stands.
    run_status, RunStatus, [
    0 = (RunStatus::Running),
    1 = (RunStatus::Suspended),
    2 = (RunStatus::Cancelling),
    3 = (RunStatus::Finished),
    4 = (RunStatus::Failed),
    5 = (RunStatus::Quarantined),
]);

codes!(
    /// How a request stands.
    request_status, InteractionStatus, [
    0 = (InteractionStatus::Pending),
    1 = (InteractionStatus::Decided),
    2 = (InteractionStatus::Expired),
    3 = (InteractionStatus::Cancelled),
    4 = (InteractionStatus::Superseded),
]);

codes!(
    /// What kind a request is.
    request_kind, InteractionKind, [
    0 = (InteractionKind::Approval),
    1 = (InteractionKind::Question),
    2 = (InteractionKind::InDoubt),
    3 = (InteractionKind::Quarantine),
]);

codes!(
    /// The strongest cancel noted.
    cancel, CancelKind, [
    1 = (CancelKind::Supersede),
    2 = (CancelKind::Cancel),
]);

/// Every status a request can have, in the order of the codes.
pub(crate) const REQUEST_STATUSES: [InteractionStatus; 5] = [
    InteractionStatus::Pending,
    InteractionStatus::Decided,
    InteractionStatus::Expired,
    InteractionStatus::Cancelled,
    InteractionStatus::Superseded,
];

/// What happens to a request at its deadline: for the scans, which leave some out. It is read from the terms.
pub(crate) fn on_timeout(value: OnTimeout) -> i64 {
    match value {
        OnTimeout::Deny => 0,
        OnTimeout::Wait => 1,
        OnTimeout::Policy => 2,
        OnTimeout::Leave => 3,
    }
}
