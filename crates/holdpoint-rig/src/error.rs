//! Rig's errors as ours: a stable code, whether asking again helps, and no bodies, which can hold keys.

use std::time::Duration;

use holdpoint_models::ModelError;
use rig_core::error::{ErrorKind, ProviderError};

pub(crate) fn of(failed: &ProviderError) -> ModelError {
    let status = failed.provider_response_status().map(|status| status.as_u16());
    let code = match status {
        Some(401 | 403) => "unauthorized",
        Some(429) => "rate_limited",
        Some(408 | 504) => "timeout",
        Some(503 | 529) => "overloaded",
        Some(400..=499) => "bad_request",
        Some(_) => "provider_error",
        None if failed.kind() == ErrorKind::Request => "bad_request",
        None => "provider_error",
    };
    ModelError {
        code,
        message: message(failed, status),
        retryable: failed.is_retryable(),
        retry_after: wait(failed),
    }
}

pub(crate) fn message(failed: &ProviderError, status: Option<u16>) -> String {
    let what = match failed.kind() {
        ErrorKind::Http => "the provider could not be reached, or the connection was lost",
        ErrorKind::Request => "the request could not be written for this provider",
        ErrorKind::Json | ErrorKind::Response => "the provider's reply cannot be read, or broke off",
        ErrorKind::ProviderResponse | ErrorKind::Provider => "the provider reports an error",
        _ => "the provider failed",
    };
    match status {
        Some(status) => format!("{what} ({status})"),
        None => what.to_owned(),
    }
}

fn wait(failed: &ProviderError) -> Option<Duration> {
    let asked = failed.provider_response_headers()?.get("retry-after")?.to_str().ok()?;
    Duration::try_from_secs_f64(asked.trim().parse().ok()?).ok()
}
