//! Orders: whichever runs ask for one and whoever dies meanwhile, it is paid once, unless a person has it paid again.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::check::{all_of, text};
use crate::world::World;

#[derive(Default)]
struct Order {
    /// Calls that ask for it, and those of them that a person had run again.
    calls: usize,
    again: usize,
    executed: usize,
    replayed: usize,
}

/// Gives what there was, in words.
pub fn check(
    world: &World,
    stored: &BTreeMap<String, Value>,
    logs: &BTreeMap<String, Vec<Value>>,
    wrong: &mut Vec<String>,
) -> String {
    let mut orders: BTreeMap<String, Order> = BTreeMap::new();
    for request in stored.values().filter(|request| request["request"]["toolName"] == "shop__pay") {
        let call = &request["request"]["callId"];
        if request["kind"] != "approval" {
            continue;
        }
        let arguments: Value = serde_json::from_str(&text(&request["request"]["arguments"])).unwrap();
        let order = orders.entry(text(&arguments["order"])).or_default();
        order.calls += 1;
        let ordered_again = |other: &&Value| {
            other["kind"] == "in_doubt"
                && other["request"]["callId"] == *call
                && other["decision"]["decision"] == "approve"
        };
        order.again += stored.values().filter(ordered_again).count();
        let events = &logs[&text(&request["runId"])];
        for result in all_of(events, "toolResults").into_iter().filter(|result| result["callId"] == *call) {
            order.executed += usize::from(result["executed"] == "yes");
            order.replayed += usize::from(result["code"] == "REPLAYED");
        }
    }
    let mut paid: BTreeMap<String, usize> = BTreeMap::new();
    for order in world.site.log("paid.txt") {
        *paid.entry(order).or_default() += 1;
    }
    for (name, order) in &orders {
        let paid = paid.remove(name).unwrap_or(0);
        let most = 1 + order.again;
        if paid > most || order.executed > paid || (order.replayed > 0 && paid == 0) {
            let Order { calls, executed, replayed, .. } = order;
            wrong.push(format!(
                "{name} was paid {paid} times, {most} at most; of {calls} calls {executed} say that they paid, {replayed} that it was paid"
            ));
        }
    }
    if !paid.is_empty() {
        wrong.push(format!("paid, and nobody asked for it: {paid:?}"));
    }
    let sum = |of: fn(&Order) -> usize| orders.values().map(of).sum::<usize>();
    format!(
        "{} orders asked for {} times, {} paid, {} replayed",
        orders.len(),
        sum(|order| order.calls),
        sum(|order| order.executed),
        sum(|order| order.replayed)
    )
}
