//! A transaction in two flights: what is asked first goes out with its beginning, what is written with its end.

use deadpool_postgres::Object;
use futures_util::future::{try_join, try_join_all};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::{Fault, of_commit};
use super::rows::Done;
use super::{PostgresStore, Work};
use crate::Error;

/// Every statement of a group looks rows up by their key, however many: plans are made once, and never for a scan, although
/// the tables may have been empty when they were made.
pub(super) const BEGIN: &str = "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; \
                                SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// A column of rows that are written or asked for together.
pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// What `of` takes from each row.
pub(super) fn column<'a, R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Column<'a>
where
    T: ToSql + Sync + Send + std::fmt::Debug + 'a,
{
    Box::new(rows.iter().map(of).collect::<Vec<T>>())
}

/// A statement about many rows, and their columns.
pub(super) struct Rows<'a> {
    sql: &'static str,
    columns: Vec<Column<'a>>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(sql: &'static str, columns: Vec<Column<'a>>) -> Self {
        Self { sql, columns }
    }

    /// Without rows there is nothing to ask.
    pub(super) fn some<R>(sql: &'static str, rows: &[R], columns: Vec<Column<'a>>) -> Option<Self> {
        (!rows.is_empty()).then_some(Self { sql, columns })
    }

    fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.columns.iter().map(|column| &**column as &(dyn ToSql + Sync)).collect()
    }
}

/// A connection in a transaction. One whose transaction did not come to its end is closed, and not used again.
pub(super) struct Lane {
    client: Option<Object>,
}

impl PostgresStore {
    pub(super) async fn lane(&self, work: Work) -> Done<Lane> {
        Ok(Lane { client: Some(self.connection(work).await?) })
    }
}

impl Lane {
    pub(super) fn client(&self) -> Done<&Object> {
        self.client.as_ref().ok_or_else(|| Error::Unavailable("the connection was given up".into()).into())
    }

    /// Begins, and asks for all of it, in one flight and in this order.
    pub(super) async fn begin<const N: usize>(&self, asked: [Option<Rows<'_>>; N]) -> Done<[Vec<Row>; N]> {
        let client = self.client()?;
        let mut statements = Vec::with_capacity(N);
        for rows in &asked {
            statements.push(match rows {
                Some(rows) => Some((client.prepare_cached(rows.sql).await?, rows.parameters())),
                None => None,
            });
        }
        let begin = async { Ok(client.batch_execute(BEGIN).await?) };
        let sent = statements.iter().map(async |statement| match statement {
            Some((statement, parameters)) => Ok::<_, Fault>(client.query(statement, parameters).await?),
            None => Ok(Vec::new()),
        });
        let ((), found) = try_join(begin, try_join_all(sent)).await?;
        let mut found = found.into_iter();
        Ok(std::array::from_fn(|_| found.next().unwrap_or_default()))
    }

    /// Writes all of it and commits, in one flight. A statement that fails undoes the others, and the commit with them.
    pub(super) async fn write(&self, writes: &[Rows<'_>]) -> Done<()> {
        let client = self.client()?;
        let mut statements = Vec::with_capacity(writes.len());
        for rows in writes {
            statements.push(client.prepare_cached(rows.sql).await?);
        }
        // Where no answer comes, it may be done: the commit is on its way already.
        let sent = writes.iter().zip(&statements).map(async |(rows, statement)| {
            client.execute(statement, &rows.parameters()).await.map(drop).map_err(of_commit)
        });
        let commit = async { client.batch_execute("COMMIT").await.map_err(of_commit) };
        try_join(try_join_all(sent), commit).await?;
        Ok(())
    }

    pub(super) fn end(mut self) {
        drop(self.client.take());
    }

    pub(super) async fn roll_back(self) {
        if let Some(client) = &self.client
            && client.batch_execute("ROLLBACK").await.is_ok()
        {
            self.end();
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}
