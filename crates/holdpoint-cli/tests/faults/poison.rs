//! A run that ends every process which takes it up.

use serde_json::{Value, json};

use crate::bed::{asked, assert_whole, decide, events};
use crate::common::process::Serving;
use crate::common::site::{Database, Site};
use crate::common::until;

/// A server of tools with one that kills whoever calls it. The operator said that it may run again, so it does.
const SERVER: &str = r#"
const fs = require('fs');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const say = (answer) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id: message.id, ...answer }) + '\n');
  const answer = (result) => say({ result });
  if (message.method === 'initialize') {
    const { protocolVersion } = message.params;
    answer({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'bad', version: '1' } });
  } else if (message.method === 'tools/list') {
    answer({ tools: [{ name: 'boom', description: 'Ends its caller.', inputSchema: { type: 'object' } }] });
  } else if (message.method === 'tools/call') {
    fs.appendFileSync('boom.txt', 'boom\n');
    if (fs.existsSync('mended')) return answer({ content: [{ type: 'text', text: 'mended' }] });
    let parent = process.ppid; // Or whoever started that one.
    while (fs.readFileSync(`/proc/${parent}/comm`, 'utf8').trim() !== 'holdpoint') {
      parent = fs.readFileSync(`/proc/${parent}/stat`, 'utf8').replace(/.*[)] . ([0-9]+) .*/s, '$1');
    }
    process.kill(parent, 'SIGKILL');
  } else {
    say({ error: { code: -32601, message: 'not here' } });
  }
});
"#;

const SCRIPT: &str = "rules:
  - when: {has_tool_result: true}
    answer: {text: done}
  - when: {user_contains: poison}
    answer: {calls: [{id: c0, name: bad__boom, arguments: {}}]}
  - when: {user_contains: slow}
    answer: {text: done, delay_ms: 1500}
  - answer: {calls: [{id: c0, name: Bash, arguments: {command: echo ran >> log.txt}}]}
";

/// As many deaths as a run may cost: the first one and those of the processes that took it up.
const DEATHS_MAX: usize = 1 + 5;

/// A run that was set aside, beside one that waits, and what they stand on.
struct SetAside {
    site: Site,
    serving: Serving,
    poison: String,
    waiting: String,
}

/// Whoever starts the processes again keeps doing so. After a few the run is set aside; those that were in hand with it each time
/// are not, and those that only waited notice nothing.
fn set_aside(database: Database) -> SetAside {
    let site = Site::on(database, SCRIPT);
    site.configure("", "mcp = [\"bad\"]\n\n[[agents.policies]]\nallow = [\"bad__boom\"]");
    let config = std::fs::read_to_string(site.config()).unwrap();
    let bad =
        "\n[mcp.bad]\ncommand = \"node\"\nargs = [\"server.js\"]\neffects = { boom = \"idempotent\" }\n";
    site.write("holdpoint.toml", &(config + bad + &format!("cwd = {:?}\n", site.path("."))));
    site.write("server.js", SERVER);

    let mut serving = Serving::start(site.serve());
    let waiting = crate::bed::start(&serving.server);
    let start = |serving: &Serving, query: &str| {
        // The answer comes with the end; here it is enough that the run is stored.
        let (server, query) = (serving.server.clone(), query.to_owned());
        drop(std::thread::spawn(move || drop(server.try_post("/chat", &json!({ "query": query }), None))));
    };
    let slow = 2;
    (0..slow).for_each(|_| start(&serving, "slow"));
    until("the slow ones", || {
        (serving.server.get("/v1/runs")["items"].as_array().unwrap().len() == 1 + slow).then_some(())
    });
    start(&serving, "poison");
    let mut deaths = 0;
    let poison = loop {
        let over = until("its end, or a run set aside", || {
            if serving.child.try_wait().unwrap().is_some() {
                return Some(None);
            }
            let (_, runs) = serving.server.try_get("/v1/runs?status=quarantined").ok()?;
            runs["items"].as_array()?.first().map(|run| Some(run.clone()))
        });
        if let Some(poison) = over {
            break poison["runId"].as_str().unwrap().to_owned();
        }
        serving.wait();
        deaths += 1;
        assert!(deaths <= DEATHS_MAX, "it goes on ending processes");
        site.dead_are_known_to_be();
        serving = Serving::start(site.serve());
    };
    println!("{deaths} processes ended");
    assert_eq!(booms(&site), deaths, "each by the tool");
    let runs = until("all others at their end", || {
        let runs = serving.server.get("/v1/runs")["items"].as_array().unwrap().clone();
        let finished = runs.iter().filter(|run| run["status"] == "finished").count();
        (finished == slow).then_some(runs)
    });
    let aside = runs.iter().filter(|run| run["status"] == "quarantined");
    assert!(aside.into_iter().all(|run| run["runId"] == poison.as_str()));
    SetAside { site, serving, poison, waiting }
}

/// How often the tool ran.
fn booms(site: &Site) -> usize {
    std::fs::read_to_string(site.path("boom.txt")).unwrap().lines().count()
}

impl SetAside {
    /// What an operator is asked: it says which call may have run.
    fn asked(&self) -> Value {
        let request = asked(&self.serving.server, &self.poison, "quarantine");
        let shown = &request["request"];
        assert_eq!(shown["type"], "quarantine_request");
        assert_eq!((&shown["claims"], &shown["decisions"]), (&json!(5), &json!(["approve", "decline"])));
        assert_eq!(shown["calls"][0]["toolName"], "bad__boom");
        request
    }

    /// The run that waited all the time goes on as if nothing had been.
    fn the_other_goes_on(mut self) {
        let server = &self.serving.server;
        decide(server, &asked(server, &self.waiting, "approval"), "approve");
        assert_whole(server, &self.waiting);
        assert_eq!(self.site.lines("log.txt"), 1);
        assert!(self.serving.child.try_wait().unwrap().is_none(), "it lives");
    }
}

/// What ended them is mended, an operator says so, and the run goes on to its end.
pub fn a_tool_that_ends_every_process_is_set_aside_and_the_others_go_on() {
    for database in [Database::File, Database::postgres()] {
        let aside = set_aside(database);
        let server = &aside.serving.server;
        let request = aside.asked();
        // Not what it takes: nothing is decided.
        let (status, _) = server.decide(&request, "feedback", json!({ "reason": "no" }));
        assert_eq!(status, 422);
        let before = booms(&aside.site);
        aside.site.write("mended", "");
        decide(server, &request, "approve");
        assert_whole(server, &aside.poison);
        assert_eq!(booms(&aside.site), before + 1, "the class of the tool lets it run once more");
        let (status, answer) = server.decide(&request, "decline", json!({}));
        assert_eq!((status, answer["decision"].as_str()), (409, Some("approve")), "{answer}");
        aside.the_other_goes_on();
    }
}

/// An operator lets it end: each call is answered, and nothing more runs of it.
pub fn a_run_set_aside_that_an_operator_declines_ends_as_failed() {
    for database in [Database::File, Database::postgres()] {
        let aside = set_aside(database);
        let server = &aside.serving.server;
        let request = aside.asked();
        let before = booms(&aside.site);
        decide(server, &request, "decline");
        let run = until("its end", || {
            let run = server.get(&format!("/v1/runs/{}", aside.poison));
            (run["status"] == "failed").then_some(run)
        });
        assert_eq!((&run["error"]["code"], &run["pending"]), (&json!("quarantined"), &json!([])));
        let events = events(server, &aside.poison);
        let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
        assert_eq!(results.len(), 1);
        assert_eq!(results[0]["toolResults"][0]["executed"], "unknown");
        assert_eq!(server.get(&format!("/v1/audit/verify?run={}", aside.poison))["items"][0]["whole"], true);
        assert_eq!(booms(&aside.site), before);
        aside.the_other_goes_on();
    }
}
