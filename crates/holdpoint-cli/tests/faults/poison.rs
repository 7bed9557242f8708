//! A run that ends every process which takes it up.

use serde_json::json;

use crate::bed::{asked, assert_whole, decide};
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

/// Whoever starts the processes again keeps doing so. After a few the run is set aside; those that were in hand with it each time
/// are not, and those that only waited notice nothing.
pub fn a_tool_that_ends_every_process_is_set_aside_and_the_others_go_on() {
    for database in [Database::File, Database::postgres()] {
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
            drop(std::thread::spawn(move || {
                drop(server.try_post("/chat", &json!({ "query": query }), None))
            }));
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
                break poison;
            }
            serving.wait();
            deaths += 1;
            assert!(deaths <= DEATHS_MAX, "it goes on ending processes");
            site.dead_are_known_to_be();
            serving = Serving::start(site.serve());
        };
        let server = &serving.server;
        println!("{deaths} processes ended");
        let booms = std::fs::read_to_string(site.path("boom.txt")).unwrap().lines().count();
        assert_eq!(booms, deaths, "each by the tool");
        let runs = until("all others at their end", || {
            let runs = server.get("/v1/runs")["items"].as_array().unwrap().clone();
            let finished = runs.iter().filter(|run| run["status"] == "finished").count();
            (finished == slow).then_some(runs)
        });
        assert!(
            runs.iter()
                .filter(|run| run["status"] == "quarantined")
                .all(|run| run["runId"] == poison["runId"])
        );
        decide(server, &asked(server, &waiting, "approval"), "approve");
        assert_whole(server, &waiting);
        assert_eq!(site.lines("log.txt"), 1);
        assert!(serving.child.try_wait().unwrap().is_none(), "it lives");
    }
}
