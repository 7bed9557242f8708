//! The inbox and the list of runs.

use holdpoint_protocol::{DecisionWord, InteractionKind, InteractionStatus, RequestId, RunStatus};
use holdpoint_store::{Error, InteractionFilter, PAGE_MAX, PageRequest, RunFilter};

use crate::bed::{Bed, ana, conformance, cx};
use crate::walk::{Walk, decide};

conformance!(
    the_inbox_is_read_in_pages_oldest_first,
    the_inbox_holds_what_was_asked_for,
    an_interaction_is_shown_as_it_was_announced,
    runs_are_listed_newest_first,
    a_cursor_of_another_list_is_refused,
    a_page_has_a_bound,
    what_is_needed_of_a_request_to_decide_it_is_found_by_its_id,
);

async fn pages(bed: &Bed, filter: &InteractionFilter, limit: usize) -> Vec<RequestId> {
    let mut page = PageRequest { cursor: None, limit };
    let mut all = Vec::new();
    loop {
        let found = bed.store.interactions(&ana(), filter, &page).await.unwrap();
        assert!(found.items.len() <= limit);
        all.extend(found.items.iter().map(|item| item.request_id));
        match found.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => return all,
        }
    }
}

async fn the_inbox_is_read_in_pages_oldest_first(bed: Bed) {
    let mut expected = Vec::new();
    for n in 0..5 {
        expected.extend(Walk::suspended(&bed, &ana(), &format!("job-{n}")).await.requests());
        Walk::suspended(&bed, &cx("other", "ana"), &format!("job-{n}")).await;
        bed.clock.advance_ms(n % 2);
    }
    // Closed ones keep their place among the others.
    decide(&bed.store, &ana(), expected[3], DecisionWord::Decline).await;
    decide(&bed.store, &ana(), expected[6], DecisionWord::Approve).await;
    for limit in [1, 2, 3, 7, 10, 50] {
        assert_eq!(pages(&bed, &InteractionFilter::default(), limit).await, expected, "{limit}");
    }
    let pending = InteractionFilter { status: Some(InteractionStatus::Pending), ..Default::default() };
    let open: Vec<_> =
        expected.iter().enumerate().filter(|(n, _)| ![3, 6].contains(n)).map(|(_, id)| *id).collect();
    for limit in [1, 3, 8, 50] {
        assert_eq!(pages(&bed, &pending, limit).await, open, "{limit}");
    }
}

async fn the_inbox_holds_what_was_asked_for(bed: Bed) {
    let first = Walk::suspended(&bed, &ana(), "one").await;
    let second = Walk::suspended(&bed, &ana(), "two").await;
    decide(&bed.store, &ana(), first.requests()[0], DecisionWord::Decline).await;
    let (a, b) = (first.requests(), second.requests());
    let status = |status| InteractionFilter { status: Some(status), ..Default::default() };
    let of = |run| InteractionFilter { run: Some(run), ..Default::default() };
    for (what, filter, expected) in [
        ("decided", status(InteractionStatus::Decided), vec![a[0]]),
        ("expired", status(InteractionStatus::Expired), vec![]),
        ("pending", status(InteractionStatus::Pending), vec![a[1], b[0], b[1]]),
        ("of a run", of(first.id()), vec![a[0], a[1]]),
        ("of no run", of(holdpoint_protocol::RunId(uuid::Uuid::now_v7())), vec![]),
        (
            "pending of a run",
            InteractionFilter { status: Some(InteractionStatus::Pending), ..of(first.id()) },
            vec![a[1]],
        ),
        (
            "approvals",
            InteractionFilter { kind: Some(InteractionKind::Approval), ..Default::default() },
            vec![a[0], a[1], b[0], b[1]],
        ),
        (
            "questions",
            InteractionFilter { kind: Some(InteractionKind::Question), ..Default::default() },
            vec![],
        ),
    ] {
        for limit in [1, 2, 50] {
            assert_eq!(pages(&bed, &filter, limit).await, expected, "{what}, {limit} a page");
        }
    }
}

async fn an_interaction_is_shown_as_it_was_announced(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let events = bed.store.events(&ana(), walk.id(), 0, 100).await.unwrap().unwrap();
    for request in walk.requests() {
        let shown = bed.store.interaction(&ana(), request).await.unwrap().unwrap();
        let announced = events
            .iter()
            .find(|(_, json)| json.contains("\"approval_request\"") && json.contains(&request.to_string()))
            .unwrap();
        assert_eq!(shown.request.get(), &*announced.1);
        assert_eq!((shown.run_id, shown.status), (walk.id(), InteractionStatus::Pending));
        assert_eq!(shown.conversation_id.as_str(), "job");
        assert!(shown.decision.is_none());
    }
    assert!(bed.store.interaction(&ana(), RequestId(uuid::Uuid::new_v4())).await.unwrap().is_none());
}

async fn runs_are_listed_newest_first(bed: Bed) {
    let mut runs = Vec::new();
    for n in 0..5 {
        let walk = Walk::suspended(&bed, &ana(), &format!("job-{n}")).await;
        let walk = if n % 2 == 0 { walk.decided_to_the_end().await } else { walk };
        runs.insert(0, walk.id());
        Walk::started(&bed, &cx("other", "ana"), &format!("job-{n}")).await;
    }
    for (status, expected) in [
        (None, runs.clone()),
        (Some(RunStatus::Finished), vec![runs[0], runs[2], runs[4]]),
        (Some(RunStatus::Suspended), vec![runs[1], runs[3]]),
        (Some(RunStatus::Failed), vec![]),
    ] {
        for limit in [1, 2, 5, 50] {
            let mut page = PageRequest { cursor: None, limit };
            let mut found = Vec::new();
            loop {
                let read = bed
                    .store
                    .runs(&ana(), &RunFilter { status, ..RunFilter::default() }, &page)
                    .await
                    .unwrap();
                assert!(read.items.len() <= limit);
                found.extend(read.items.iter().map(|view| view.run_id));
                match read.next_cursor {
                    Some(cursor) => page.cursor = Some(cursor),
                    None => break,
                }
            }
            assert_eq!(found, expected, "{status:?}, {limit} a page");
        }
    }
}

async fn a_cursor_of_another_list_is_refused(bed: Bed) {
    for n in 0..2 {
        Walk::suspended(&bed, &ana(), &format!("job-{n}")).await;
        Walk::suspended(&bed, &cx("other", "ana"), &format!("job-{n}")).await;
    }
    let page = PageRequest { cursor: None, limit: 1 };
    let inbox =
        bed.store.interactions(&ana(), &InteractionFilter::default(), &page).await.unwrap().next_cursor;
    let runs = bed.store.runs(&ana(), &RunFilter::default(), &page).await.unwrap().next_cursor;
    let foreign = bed
        .store
        .interactions(&cx("other", "ana"), &InteractionFilter::default(), &page)
        .await
        .unwrap()
        .next_cursor;
    for cursor in [runs.clone(), foreign, Some("nonsense".into()), Some(String::new())] {
        let page = PageRequest { cursor, limit: 1 };
        let refused = bed.store.interactions(&ana(), &InteractionFilter::default(), &page).await;
        assert!(matches!(refused, Err(Error::BadCursor)), "{refused:?}");
    }
    let page = PageRequest { cursor: inbox, limit: 1 };
    let refused = bed.store.runs(&ana(), &RunFilter::default(), &page).await;
    assert!(matches!(refused, Err(Error::BadCursor)), "{refused:?}");
}

async fn a_page_has_a_bound(bed: Bed) {
    for n in 0..=PAGE_MAX / 2 {
        Walk::suspended(&bed, &ana(), &format!("job-{n}")).await;
    }
    let page = PageRequest { cursor: None, limit: usize::MAX };
    let found = bed.store.interactions(&ana(), &InteractionFilter::default(), &page).await.unwrap();
    assert_eq!(found.items.len(), PAGE_MAX);
    assert!(found.next_cursor.is_some());
    let page = PageRequest { cursor: None, limit: 0 };
    assert_eq!(bed.store.runs(&ana(), &RunFilter::default(), &page).await.unwrap().items.len(), 1);
}

async fn what_is_needed_of_a_request_to_decide_it_is_found_by_its_id(bed: Bed) {
    let walk = Walk::suspended(&bed, &ana(), "job").await;
    let id = walk.requests()[0];
    let shown = bed.store.interaction(&ana(), id).await.unwrap().unwrap();
    let head = bed.store.request(&ana(), id).await.unwrap().unwrap();
    assert_eq!(
        (head.run, head.kind, head.status, head.opened_at),
        (walk.id(), InteractionKind::Approval, InteractionStatus::Pending, shown.created_at)
    );
    let loaded = head.loaded.unwrap();
    assert_eq!((loaded.run.id(), loaded.next_seq, loaded.epoch), (walk.id(), walk.next_seq, walk.epoch));
    decide(&bed.store, &ana(), id, DecisionWord::Approve).await;
    let head = bed.store.request(&ana(), id).await.unwrap().unwrap();
    assert_eq!(head.status, InteractionStatus::Decided);
    assert!(head.loaded.is_none(), "of what is closed nobody needs the run");
    assert!(bed.store.request(&cx("other", "ana"), id).await.unwrap().is_none());
}
