//! The operator's token: made anew at each start, held in memory, shown once.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::ServerError;

/// Random bytes in a token.
pub const TOKEN_BYTES: usize = 32;

/// The operator's token: 256 bits from the operating system, as 64 hexadecimal digits.
///
/// It is never written to disk, to a log or into a tool's environment. `Debug` does not show it.
#[derive(Clone)]
pub struct OperatorToken(String);

impl OperatorToken {
    /// A new one.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, ServerError> {
        let mut bytes = [0_u8; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| ServerError::Random(error.to_string()))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The text, to be shown to the operator once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is the token. Takes as long for a near miss as for a far one.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperatorToken(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_another_one_of_256_bits() {
        let (one, other) = (OperatorToken::generate().unwrap(), OperatorToken::generate().unwrap());
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), TOKEN_BYTES * 2);
        assert!(one.is(one.reveal().as_bytes()));
        for wrong in ["", &one.reveal()[1..], other.reveal()] {
            assert!(!one.is(wrong.as_bytes()));
        }
    }

    #[test]
    fn a_token_is_not_in_its_debug_text() {
        let token = OperatorToken::generate().unwrap();
        assert!(!format!("{token:?}").contains(token.reveal()));
    }
}
