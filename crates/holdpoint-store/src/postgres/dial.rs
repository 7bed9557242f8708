//! Connections: what they have in common, and those that stand beside the pool. The lease, the listener and whoever rings have
//! one each: a full pool, a slow statement or a pooler must not keep them waiting.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig};
use futures_util::Stream;
use futures_util::stream::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::PostgresAddress;
use super::error::Fault;
use super::rows::Done;
use super::tls::{self, Tls};
use crate::{Error, Result};

/// How long a statement of these connections may take; none of them is large.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Notifications that wait to be taken up.
const NOTICES_MAX: usize = 4_096;

/// How to connect to a database.
#[derive(Clone)]
pub(super) struct Dialer {
    config: Config,
    tls: Tls,
}

/// A connection of its own. It is served until the client is dropped or it breaks.
pub(super) struct Line {
    pub(super) client: Client,
    /// What the server says by itself. Ends with the connection.
    pub(super) notices: mpsc::Receiver<String>,
}

impl Dialer {
    pub(super) fn new(url: &str, ca_file: Option<&Path>) -> Result<Self> {
        let address = PostgresAddress::parse(url).map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { config: address.config(), tls: tls::of(ca_file)? })
    }

    pub(super) fn manager(&self, recycling: ManagerConfig) -> Manager {
        Manager::from_config(self.config.clone(), self.tls.clone(), recycling)
    }

    pub(super) async fn dial(&self) -> Done<Line> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let mut messages: Pin<Box<dyn Stream<Item = _> + Send>> =
            Box::pin(poll_fn(move |cx| connection.poll_message(cx)));
        let (tx, notices) = mpsc::channel(NOTICES_MAX);
        tokio::spawn(async move {
            loop {
                let next = std::future::poll_fn(|cx| messages.as_mut().poll_next(cx)).await;
                match next {
                    // One that is not taken up in time is one that was missed: the end of the line says so.
                    Some(Ok(AsyncMessage::Notification(notice))) => {
                        if tx.try_send(notice.payload().to_owned()).is_err() && !tx.is_closed() {
                            return;
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok(Line { client, notices })
    }
}

/// Waits for an answer, but not for ever: a connection may be open at one end only.
pub(super) async fn answered<T>(
    what: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    within: Duration,
) -> Done<T> {
    match tokio::time::timeout(within, what).await {
        Ok(answer) => answer.map_err(Fault::from),
        Err(_elapsed) => Err(Error::Unavailable("the database does not answer".into()).into()),
    }
}

/// What a fault says, for the log.
pub(super) fn said(fault: Fault) -> String {
    Error::from(fault).to_string()
}
