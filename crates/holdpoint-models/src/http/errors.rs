//! What went wrong, as it may be known: bounded, without keys and addresses.

use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ModelError;
use crate::wire::{error_text, short};

/// The shortest secret that is taken out by itself: shorter ones would be found in ordinary words.
const SECRET_MIN_BYTES: usize = 6;

pub(super) fn error(code: &'static str, message: impl Into<String>, retryable: bool) -> ModelError {
    ModelError { code, message: message.into(), retryable, retry_after: None }
}

/// The innermost cause: the outer ones name addresses.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Takes secrets out of texts.
#[derive(Debug, Clone)]
pub(super) struct Redact {
    secrets: Vec<SecretString>,
}

impl Redact {
    pub(super) fn new(secrets: Vec<SecretString>) -> Self {
        Self { secrets }
    }

    pub(super) fn error(&self, mut error: ModelError) -> ModelError {
        error.message = self.text(&error.message);
        error
    }

    pub(super) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            // A header value can be `Bearer KEY`; the key alone is a secret as well.
            for part in
                secret.expose_secret().split_whitespace().filter(|part| part.len() >= SECRET_MIN_BYTES)
            {
                text = text.replace(part, "[redacted]");
            }
        }
        // Providers quote a wrong key half masked: `sk-ab***yz`.
        let quote = |c: char| c.is_whitespace() || "\"'`,;()".contains(c);
        text.split_inclusive(quote)
            .map(|word| {
                let bare = word.trim_end_matches(quote);
                let key = bare.starts_with("sk-") && bare.len() >= SECRET_MIN_BYTES;
                if key { format!("[redacted]{}", &word[bare.len()..]) } else { word.to_owned() }
            })
            .collect()
    }
}

/// A refusal of the request as a whole.
pub(super) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ModelError {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow, default)]
        error: Option<&'a RawValue>,
        #[serde(borrow, default)]
        message: Option<&'a RawValue>,
    }
    let text = String::from_utf8_lossy(body);
    let told: Option<Body<'_>> = serde_json::from_str(&text).ok();
    let told = told.and_then(|body| body.error.or(body.message)).map(error_text);
    let (code, retryable) = match status.as_u16() {
        // Out of money is no matter of waiting.
        429 => told.as_ref().map_or(("rate_limited", true), |told| match told.class() {
            ("rate_limited", retryable) => ("rate_limited", retryable),
            _ => ("rate_limited", true),
        }),
        401 | 403 => ("unauthorized", false),
        408 | 425 | 504 => ("timeout", true),
        503 | 529 => ("overloaded", true),
        409 => ("provider_error", true),
        300..=399 => ("provider_error", false),
        400..=499 => ("bad_request", false),
        _ => ("provider_error", true),
    };
    let words = told.map(|told| format!(": {}", short(&told.message))).unwrap_or_default();
    let message = format!("the provider answered {}{words}", status.as_u16());
    ModelError { code, message, retryable, retry_after: retry_after(headers) }
}

/// How long the provider asks us to wait: in milliseconds, in seconds, or until a date by its own clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str, per_second: f64| {
        let number: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(number / per_second).ok()
    };
    if let Some(wait) = text("retry-after-ms").and_then(|text| seconds(text, 1_000.0)) {
        return Some(wait);
    }
    let asked = text(RETRY_AFTER.as_str())?;
    seconds(asked, 1.0).or_else(|| {
        let date = |text: &str| jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
        let wait = date(asked)?.duration_since(date(text(DATE.as_str())?)?);
        Some(wait.try_into().unwrap_or(Duration::ZERO))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn a_wait_is_read_in_each_of_its_forms() {
        let date = ("date", "Tue, 01 Dec 2026 10:00:00 GMT");
        for (pairs, expected) in [
            (vec![("retry-after", "7")], Some(7_000)),
            (vec![("retry-after", "1.5")], Some(1_500)),
            (vec![("retry-after-ms", "250"), ("retry-after", "7")], Some(250)),
            (vec![("retry-after", "Tue, 01 Dec 2026 10:00:09 GMT"), date], Some(9_000)),
            (vec![("retry-after", "Tue, 01 Dec 2026 09:00:00 GMT"), date], Some(0)),
            (vec![("retry-after", "Tue, 01 Dec 2026 10:00:09 GMT")], None),
            (vec![("retry-after", "-1")], None),
            (vec![("retry-after", "soon")], None),
            (vec![], None),
        ] {
            let wait = retry_after(&headers(&pairs)).map(|wait| wait.as_millis());
            assert_eq!(wait, expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_refusal_has_a_code_and_says_whether_waiting_helps() {
        for (status, body, code, retryable, says) in [
            (401, r#"{"error":{"message":"bad key"}}"#, "unauthorized", false, "answered 401: bad key"),
            (429, "", "rate_limited", true, "answered 429"),
            (
                429,
                r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#,
                "rate_limited",
                false,
                "429: pay",
            ),
            (400, r#"{"message":"no"}"#, "bad_request", false, "400: no"),
            (404, r#"{"error":"model not found"}"#, "bad_request", false, "404: model not found"),
            (408, "", "timeout", true, "408"),
            (502, "<html>secret proxy page</html>", "provider_error", true, "answered 502"),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "overloaded",
                true,
                "Overloaded",
            ),
            (302, "", "provider_error", false, "302"),
        ] {
            let error = of_status(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes());
            assert_eq!((error.code, error.retryable), (code, retryable), "{status}");
            assert!(error.message.contains(says) && !error.message.contains("html"), "{}", error.message);
        }
    }

    #[test]
    fn keys_are_taken_out_of_what_is_said() {
        let redact = Redact::new(vec!["Bearer hpk_live_7Q".to_owned().into(), "ab".to_owned().into()]);
        for (text, expected) in [
            ("key hpk_live_7Q is wrong", "key [redacted] is wrong"),
            ("Incorrect API key provided: sk-ab***yz.", "Incorrect API key provided: [redacted]"),
            ("a cab and \"sk-1234567\", too", "a cab and \"[redacted]\", too"),
        ] {
            assert_eq!(redact.text(text), expected);
        }
    }
}
