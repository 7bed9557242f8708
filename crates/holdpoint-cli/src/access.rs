//! The operator's token: from the environment, or from the keyboard. Never from an argument, which everybody on the
//! machine can read, and never from a file.

use crate::client::{Base, Client};
use crate::fail::{Fail, Result};
use crate::term;

/// The environment variable that holds the token.
pub(crate) const TOKEN_VARIABLE: &str = "HOLDPOINT_TOKEN";

/// A client of this server.
pub(crate) fn client(server: &str) -> Result<Client> {
    // Before a secret is asked for.
    Base::parse(server)?;
    let token = match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if !token.trim().is_empty() => token,
        Ok(_) | Err(_) if term::is_attended() => {
            term::secret("The operator's token, as the server showed it at its start: ")?
        }
        Ok(_) | Err(_) => {
            return Err(Fail::usage("there is no token")
                .hint(format!("set {TOKEN_VARIABLE} to the one the server showed at its start")));
        }
    };
    Client::new(server, token)
}
