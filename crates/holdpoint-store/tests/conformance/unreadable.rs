//! Rows that cannot be read: each is refused as what it is, and stands in nobody else's way.

use std::sync::Arc;

use holdpoint_protocol::DecisionWord;
use holdpoint_store::{Error, PageRequest, RunFilter, SqliteStore};

use crate::bed::{Bed, ana, block_on, clock};
use crate::walk::{Walk, decision, expiring};

const TIMEOUT_MS: u64 = 1_000;

/// A way into a database past the store.
enum Behind {
    Sqlite(tempfile::TempDir),
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Client),
}

impl Behind {
    /// SQL that both understand, with `ID(uuid)` for an id and `BYTES(hex)` for bytes.
    async fn sql(&self, sql: &str) {
        match self {
            Self::Sqlite(dir) => {
                let sql = written(sql, |id| format!("x'{}'", id.replace('-', "")), |hex| format!("x'{hex}'"));
                let sql = sql.replace("request_id", "id").replace("run_id", "id");
                rusqlite::Connection::open(dir.path().join("holdpoint.db"))
                    .unwrap()
                    .execute_batch(&sql)
                    .unwrap();
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(client) => {
                let sql = written(sql, |id| format!("'{id}'"), |hex| format!("'\\x{hex}'"));
                client.batch_execute(&sql).await.unwrap();
            }
        }
    }
}

fn written(sql: &str, id: impl Fn(&str) -> String, bytes: impl Fn(&str) -> String) -> String {
    let mut text = sql.to_owned();
    for (open, write) in [("ID(", &id as &dyn Fn(&str) -> String), ("BYTES(", &bytes)] {
        while let Some((before, rest)) = text.split_once(open) {
            let (inside, after) = rest.split_once(')').unwrap();
            text = format!("{before}{}{after}", write(inside));
        }
    }
    text
}

fn sqlite() -> (Bed, Behind) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = SqliteStore::open(dir.path().join("holdpoint.db"), clock.clone()).unwrap();
    (Bed::of(Arc::new(store), clock), Behind::Sqlite(dir))
}

#[cfg(feature = "postgres")]
async fn postgres() -> (Bed, Behind) {
    let (database, clock) = (crate::cluster::database().await, clock());
    let store = database.store(u64::MAX, clock.clone()).await;
    (Bed::of(store, clock), Behind::Postgres(database.client().await))
}

macro_rules! durable {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $name() {
                super::block_on(async { let (bed, behind) = super::sqlite(); super::$name(bed, behind).await });
            })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test] fn $name() {
                super::block_on(async { let (bed, behind) = super::postgres().await; super::$name(bed, behind).await });
            })*
        }
    };
}

durable!(
    a_request_that_cannot_be_read_keeps_no_other_from_expiring,
    a_run_that_cannot_be_read_is_refused_by_its_name_and_left_out_of_lists,
    a_request_that_cannot_be_read_is_refused_by_its_name_and_left_out_of_lists,
    a_journal_that_cannot_be_read_is_refused_by_its_place,
    a_schema_that_is_not_ours_is_no_store_that_is_away,
);

fn corrupt<T: std::fmt::Debug>(read: Result<T, Error>, named: &str) {
    match read {
        Err(Error::Corrupt(why)) if why.contains(named) => {}
        other => panic!("{named} is not said to be unreadable: {other:?}"),
    }
}

async fn a_request_that_cannot_be_read_keeps_no_other_from_expiring(bed: Bed, behind: Behind) {
    let broken = Walk::suspended_with(&bed, &ana(), "broken", expiring(TIMEOUT_MS)).await.requests();
    let whole = Walk::suspended_with(&bed, &ana(), "whole", expiring(TIMEOUT_MS)).await.requests();
    for id in &broken {
        behind.sql(&format!("UPDATE request SET terms = BYTES(ff00) WHERE request_id = ID({id})")).await;
    }
    bed.clock.advance_ms(TIMEOUT_MS);
    let noted = bed.store.expire_due(100).await.unwrap();
    let expired: Vec<_> = noted.iter().filter_map(|noted| noted.event.body.request()).collect();
    assert_eq!(expired, whole);
}

async fn a_run_that_cannot_be_read_is_refused_by_its_name_and_left_out_of_lists(bed: Bed, behind: Behind) {
    let broken = Walk::suspended(&bed, &ana(), "broken").await;
    let whole = Walk::suspended(&bed, &ana(), "whole").await;
    let id = broken.id();
    behind.sql(&format!("UPDATE run SET snapshot = BYTES(ff00) WHERE run_id = ID({id})")).await;
    let named = format!("run {id}");
    corrupt(bed.store.load(&ana(), id).await, &named);
    corrupt(bed.store.run(&ana(), id).await, &named);
    let all = RunFilter { whole: true, ..RunFilter::default() };
    let refused = bed.store.runs(&ana(), &all, &PageRequest::default()).await;
    assert!(
        matches!(refused, Err(Error::Corrupt(_))),
        "who asks for all is told that one is missing: {refused:?}"
    );
    let page = bed.store.runs(&ana(), &RunFilter::default(), &PageRequest::default()).await.unwrap();
    assert_eq!(page.items.iter().map(|view| view.run_id).collect::<Vec<_>>(), [whole.id()]);
    let inbox = bed.store.interactions(&ana(), &Default::default(), &PageRequest::default()).await.unwrap();
    assert_eq!(inbox.items.iter().map(|item| item.request_id).collect::<Vec<_>>(), whole.requests());
}

async fn a_request_that_cannot_be_read_is_refused_by_its_name_and_left_out_of_lists(
    bed: Bed,
    behind: Behind,
) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let [broken, whole] = walk.requests()[..] else { panic!("two requests") };
    behind.sql(&format!("UPDATE request SET kind = 77 WHERE request_id = ID({broken})")).await;
    let named = format!("request {broken}");
    corrupt(bed.store.interaction(&ana(), broken).await, &named);
    corrupt(bed.store.decide(&ana(), decision(broken, DecisionWord::Approve, "ana")).await, &named);
    // A page that holds one request still says where the next one begins.
    let page = PageRequest { limit: 1, ..PageRequest::default() };
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = PageRequest { cursor: cursor.clone(), ..page.clone() };
        let found = bed.store.interactions(&ana(), &Default::default(), &page).await.unwrap();
        seen.extend(found.items.iter().map(|item| item.request_id));
        cursor = found.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [whole]);
    let view = bed.store.run(&ana(), walk.id()).await.unwrap().unwrap();
    assert_eq!(view.pending.iter().map(|pending| pending.request_id).collect::<Vec<_>>(), [whole]);
}

async fn a_journal_that_cannot_be_read_is_refused_by_its_place(bed: Bed, behind: Behind) {
    let id = Walk::suspended(&bed, &ana(), "job").await.id();
    behind.sql("UPDATE journal SET body = BYTES(01ff00) WHERE seq > 1").await;
    corrupt(bed.store.events(&ana(), id, 0, 100).await, &format!("run {id}, what ends with event"));
}

async fn a_schema_that_is_not_ours_is_no_store_that_is_away(bed: Bed, behind: Behind) {
    let id = Walk::suspended(&bed, &ana(), "job").await.id();
    behind.sql("ALTER TABLE run RENAME COLUMN snapshot TO theirs").await;
    corrupt(bed.store.run(&ana(), id).await, "snapshot");
}

/// A value that is not there although it must be.
#[cfg(feature = "postgres")]
#[test]
fn a_column_without_its_value_is_no_database_that_is_away() {
    block_on(async {
        let (bed, behind) = postgres().await;
        let id = Walk::suspended(&bed, &ana(), "job").await.id();
        behind
            .sql("ALTER TABLE run ALTER COLUMN snapshot DROP NOT NULL; UPDATE run SET snapshot = NULL")
            .await;
        corrupt(bed.store.run(&ana(), id).await, &format!("run {id}"));
    });
}

/// What the database cannot keep is the caller's fault, and does not get better by trying again.
#[cfg(feature = "postgres")]
#[test]
fn a_text_that_the_database_cannot_keep_is_no_database_that_is_away() {
    block_on(async {
        let (bed, _behind) = postgres().await;
        let key = holdpoint_store::EffectKey {
            tool: "pay".into(),
            key: "order\u{0}7".into(),
            exec: holdpoint_protocol::ExecId(uuid::Uuid::from_u128(1)),
            arguments: [0; 32],
        };
        let refused = bed.store.begin_effect(&ana(), &key).await;
        assert!(matches!(refused, Err(Error::Inconsistent(_))), "{refused:?}");
    });
}
