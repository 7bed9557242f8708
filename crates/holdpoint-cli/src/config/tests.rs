use std::os::unix::fs::symlink;

use super::*;

struct Place {
    dir: tempfile::TempDir,
}

const SCRIPT: &str = "rules: [{answer: {text: hello}}]\n";

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        std::fs::write(dir.path().join("script.yaml"), SCRIPT).unwrap();
        Self { dir }
    }

    fn load(&self, config: &str) -> Result<Config> {
        let path = self.dir.path().join("holdpoint.toml");
        std::fs::write(&path, config).unwrap();
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        threads.block_on(load(Some(&path)))
    }

    fn fails(&self, config: &str) -> String {
        self.load(config).err().map(|fail| fail.to_string()).unwrap_or_default()
    }
}

const MODEL: &str = "[models.m]\nprovider = \"scripted\"\nscript = \"script.yaml\"\n";

fn config(server: &str, agent: &str, rest: &str) -> String {
    format!(
        "[server]\ndatabase = \"data/holdpoint.db\"\n{server}\n{MODEL}\n[[agents]]\nname = \"main\"\nmodel = \"m\"\nworkdir = \"work\"\n{agent}\n{rest}"
    )
}

#[test]
fn a_small_configuration_gives_an_agent_with_the_built_in_tools_and_the_shipped_policy() {
    let place = Place::new();
    let config = place.load(&config("", "", "")).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(config.database, Database::File(place.dir.path().join("data/holdpoint.db")));
    assert!(!config.bypass_approval);
    assert_eq!(config.warnings, [""; 0]);
    let agent = &config.agents[0];
    assert_eq!(agent.tools().names(), ["Read", "List", "Search", "Write", "Edit", "Delete", "Bash"]);
    let verdicts: Vec<_> =
        agent.tools().names().iter().map(|name| agent.policy().rule(name).verdict.as_str()).collect();
    assert_eq!(verdicts, ["allow", "allow", "allow", "ask", "ask", "ask", "ask"]);
    assert_eq!(agent.model_names().collect::<Vec<_>>(), ["m"], "by the name the configuration gives it");
}

#[test]
fn layers_combine_to_the_strictest_and_apply_to_the_agents_they_name() {
    let place = Place::new();
    let config = place
        .load(&config(
            "",
            "[[agents.policies]]\nallow = [\"*\"]\n",
            "[[policies]]\nname = \"house\"\nallow = [\"*\"]\ndeny = [\"Bash\"]\nrequire_approval_for = [\"Write\"]\n\
             [[agents]]\nname = \"other\"\nmodel = \"m\"\nworkdir = \"work\"\n\
             [[policies]]\nname = \"others\"\nagents = [\"other\"]\nallow = [\"Read\"]\n",
        ))
        .unwrap();
    let says = |agent: usize, tool| config.agents[agent].policy().rule(tool).verdict.as_str();
    assert_eq!(
        ["Read", "Write", "Edit", "Bash"].map(|tool| says(0, tool)),
        ["allow", "ask", "allow", "deny"]
    );
    assert_eq!(["Read", "Write", "Edit", "Bash"].map(|tool| says(1, tool)), ["allow", "ask", "ask", "deny"]);
}

#[test]
fn a_rule_that_can_never_apply_is_a_warning_that_names_it() {
    let place = Place::new();
    let config = place
        .load(&config(
            "",
            "tools = [\"Read\", \"Write\"]\n[[agents.policies]]\nallow = [\"read\", \"R*\"]\n",
            "[[policies]]\nname = \"house\"\nallow = [\"*\"]\ndeny = [\"Bash\", \"Write\"]\n",
        ))
        .unwrap();
    assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
    assert!(config.warnings[0].contains("policy `main's policy` of agent `main`: the rule allow = \"read\""));
    assert!(config.warnings[1].contains("policy `house`: the rule deny = \"Bash\""));
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let place = Place::new();
    for (server, agent, rest, says) in [
        ("", "tools = [\"read\"]", "", "agent `main`: there is no tool `read`\n\nhint: did you mean `Read`?"),
        ("", "tools = [\"Fetch\"]", "", "hint: there are: Read, List, Search, Write, Edit, Delete, Bash"),
        ("", "models = [\"mm\"]", "", "agent `main`: there is no model `mm`\n\nhint: there are: m"),
        ("", "limits = {rounds = 0}", "", "`limits.rounds` is 0, with which nothing could run"),
        ("", "limits = {calls_per_reply = 65}", "", "calls_per_reply is 65, at most 64"),
        (
            "",
            "instructions = \"a\"\ninstructions_file = \"b\"",
            "",
            "both `instructions` and `instructions_file`",
        ),
        ("", "instructions_file = \"b.md\"", "", "b.md` cannot be read"),
        (
            "",
            "approval_timeout = 30",
            "",
            "30 has no unit; write a whole number and its unit, such as \"30s\"",
        ),
        ("", "approval_timeout = \"0s\"", "", "at least 1s and at most 3650d"),
        ("shutdown_grace = \"1w\"", "", "", "is not a time"),
        ("retention = \"90\"", "", "", "is not a time"),
        ("listen = \"localhost\"", "", "", "line 3, column 10"),
        ("listen = \"127.0.0.1:99999\"", "", "", "line 3, column 10"),
        ("", "", "[[agents]]\nname = \"main\"\nmodel = \"m\"\ntools = []\n", "two agents are named `main`"),
        ("", "", "[[agents]]\nname = \"two\"\nmodel = \"m\"\n", "agent `two`: its tools need a `workdir`"),
        ("", "", "[[agents]]\nname = \"a b\"\nmodel = \"m\"\ntools = []\n", "agent name \"a b\""),
        (
            "",
            "",
            "[[policies]]\nname = \"p\"\nagents = [\"mian\"]\n",
            "there is no agent `mian`\n\nhint: did you mean `main`?",
        ),
        ("", "", "[[policies]]\nname = \"p\"\nallow = [\"read file\"]\n", "can match no tool"),
        ("", "", "[[policies]]\nname = \"p\"\nallow = [\"\"]\n", "an empty pattern matches no tool"),
        ("", "", "[models.x]\nprovider = \"scripted\"\n", "a scripted model needs the path of its script"),
        ("", "", "[models.x]\nprovider = \"openia\"\nmodel = \"y\"\n", "did you mean `openai`?"),
    ] {
        let error = place.fails(&config(server, agent, rest));
        assert!(error.starts_with("error: ") && error.contains(says), "{server}{agent}{rest}\n{error}");
    }
    assert!(place.fails(&format!("agents = []\n{MODEL}")).contains("the configuration has no agent"));
    assert!(place.fails(&format!("[[agents]]\nname = \"main\"\n{MODEL}")).contains("missing field `model`"));
}

/// What decides what an agent may do must be out of its reach.
#[test]
fn nothing_that_decides_may_lie_where_the_tools_work() {
    let place = Place::new();
    let work = place.dir.path().join("work");
    for (name, what) in [("s.yaml", "script"), ("i.md", "instructions")] {
        std::fs::write(work.join(name), if what == "script" { SCRIPT } else { "be kind" }).unwrap();
    }
    symlink("work/s.yaml", place.dir.path().join("link-into.yaml")).unwrap();
    symlink("../script.yaml", work.join("link-out.yaml")).unwrap();
    symlink("work", place.dir.path().join("alias")).unwrap();
    let elsewhere = |script: &str| format!("[models.x]\nprovider = \"scripted\"\nscript = \"{script}\"\n");
    for (text, says) in [
        (config("", "", &elsewhere("work/s.yaml")), "the script of model `x`"),
        (config("", "", &elsewhere("link-into.yaml")), "the script of model `x`"),
        (config("", "", &elsewhere("work/link-out.yaml")), "the script of model `x`"),
        (config("", "", &elsewhere("alias/s.yaml")), "the script of model `x`"),
        (config("", "", &elsewhere("data/../work/../work/s.yaml")), ""),
        (config("", "instructions_file = \"work/i.md\"", ""), "the instructions of agent `main`"),
        (config("", "", "").replace("data/", "work/"), "the database"),
        (config("", "", "").replace("data/", "alias/new/deep/"), "the database"),
        (config("", "", "").replace("workdir = \"work\"", "workdir = \".\""), "the configuration"),
        (config("", "", "").replace("workdir = \"work\"", "workdir = \"/\""), "the configuration"),
    ] {
        std::fs::create_dir_all(place.dir.path().join("data")).unwrap();
        let error = place.fails(&text);
        assert!(
            error.contains(says)
                && error.contains("where the tools of agent `main` work")
                && error.contains("hint: "),
            "{text}\n{error}"
        );
    }
}

#[test]
fn an_agent_that_names_a_server_of_tools_which_is_not_declared_is_refused_with_the_nearest() {
    let place = Place::new();
    let said = place.fails(&config("", "mcp = [\"flies\"]", "[mcp.files]\ncommand = \"true\"\n"));
    assert!(said.contains("there is no mcp server `flies`"), "{said}");
}

#[test]
fn a_database_is_a_file_or_a_url_whose_password_is_never_shown() {
    let place = Place::new();
    let with = |database: &str| config("", "", "").replace("database = \"data/holdpoint.db\"", database);
    let near = place.load(&with("database = \"postgres://u:secret@127.0.0.1/app\"")).unwrap();
    assert_eq!(near.database.to_string(), "PostgreSQL database `app` at 127.0.0.1:5432");
    assert_eq!(near.warnings, [""; 0]);
    let far = place.load(&with("database = \"postgres://u:secret@db.example/app\"")).unwrap();
    assert_eq!(far.warnings.len(), 1, "{:?}", far.warnings);
    assert!(far.warnings[0].contains("sslmode=require") && !far.warnings[0].contains("secret"));
    for (database, says) in [
        ("database = \"mysql://u:secret@h/app\"", "`database` is a URL of `mysql`"),
        ("database = \"postgres:/u:secret@h/app\"", "`database` is no URL"),
        ("database = \"host=h user=u password=secret dbname=app\"", "`database` is no URL"),
        ("database = \"postgres://u:top@secret@h/app\"", "`database` cannot be used: it is not the URL"),
        ("database = \"postgres://u:secret@h:x/app\"", "`database` cannot be used: it is not the URL"),
        ("database_url_env = \"HOLDPOINT_NO_SUCH_VARIABLE\"", "`HOLDPOINT_NO_SUCH_VARIABLE` is not set"),
        ("database = \"a.db\"\ndatabase_url_env = \"X\"", "both `database` and `database_url_env`"),
        (
            "database = \"a.db\"\ndatabase_listen_url_env = \"HOLDPOINT_NO_SUCH_VARIABLE\"",
            "`HOLDPOINT_NO_SUCH_VARIABLE` is not set",
        ),
        (
            "database = \"postgres://u:secret@h/app\"\ndatabase_listen_url_env = \"PATH\"",
            "the variable `PATH` is no URL",
        ),
    ] {
        let error = place.fails(&with(database));
        assert!(error.contains(says) && error.contains("hint: "), "{database}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

const PRESETS: &str = "[[presets]]\nname = \"night\"\n[[presets.releases]]\ntool = \"Write\"\nwhen = { path = { one_of = [\"notes.txt\"] } }\n";

#[test]
fn how_requests_wait_is_read_and_a_layer_only_tightens() {
    use holdpoint_core::terms::AtDeadline;
    let place = Place::new();
    let agent = "approval_timeout = \"24h\"\non_timeout = \"wait\"\nremind_every = \"4h\"\napprovers = [\"ops\"]\n\
                 escalate_to = [\"leads\"]\n[[agents.approvals]]\ntools = [\"Write\"]\ntimeout = \"10m\"\n\
                 on_timeout = \"policy\"\npreset = \"night\"\n";
    let layer = "[[policies]]\nname = \"house\"\nallow = [\"Read\"]\n[[policies.approvals]]\ntools = [\"B*\"]\n\
                 timeout = \"1h\"\non_timeout = \"deny\"\n";
    let config = place.load(&config("", agent, &format!("{PRESETS}{layer}"))).unwrap();
    assert_eq!(config.warnings, [""; 0]);
    let terms = config.agents[0].approval();
    for (tool, minutes, end) in [
        ("Edit", 24 * 60, AtDeadline::Wait),
        ("Write", 10, AtDeadline::Preset("night".into())),
        ("Bash", 60, AtDeadline::Deny),
    ] {
        let rule = terms.of(tool);
        assert_eq!((rule.timeout_ms, rule.at_deadline), (Some(minutes * 60_000), Some(end)), "{tool}");
        assert_eq!(rule.escalate_to.unwrap()[0].as_str(), "leads", "{tool}");
    }
    let preset = &config.agents[0].presets()[0];
    assert_eq!(preset.used().written_by.as_str(), "configuration");
}

/// A layer says how strict an end is at least, where there is one; and who waits without a deadline can be reminded of.
#[test]
fn a_layer_may_be_strict_about_deadlines_there_are_not_and_reminders_need_none() {
    let place = Place::new();
    let layer =
        "[[policies]]\nname = \"house\"\n[[policies.approvals]]\ntools = [\"*\"]\non_timeout = \"deny\"\n";
    let config = place.load(&config("", "remind_every = \"4h\"\n", layer)).unwrap();
    let rule = config.agents[0].approval().of("Bash");
    assert_eq!((rule.timeout_ms, rule.remind_every_ms), (None, Some(4 * 3_600_000)));
}

#[test]
fn what_would_never_happen_at_a_deadline_is_refused_with_what_to_do() {
    let place = Place::new();
    for (agent, rest, says) in [
        ("on_timeout = \"policy\"", PRESETS, "does not say which preset decides"),
        ("preset = \"night\"", PRESETS, "`preset` goes with `on_timeout = \"policy\"`"),
        (
            "on_timeout = \"policy\"\npreset = \"nigth\"",
            PRESETS,
            "agent `main`: there is no preset `nigth`\n\nhint: did you mean `night`?",
        ),
        (
            "on_timeout = \"policy\"\npreset = \"night\"",
            PRESETS,
            "preset `night` would never be asked of a call of `Read`",
        ),
        (
            "escalate_to = [\"leads\"]",
            "",
            "`escalate_to` would never be told of a call of `Read`: there is no deadline",
        ),
        ("escalate_to = []", "", "`escalate_to` names nobody"),
        (
            "on_timeout = \"deny\"",
            "",
            "agent `main`: `on_timeout` would never be looked at of a call of `Read`: there is no deadline for it\n\nhint: set \
             `approval_timeout`",
        ),
        ("[[agents.approvals]]\ntools = [\"Bash\"]\non_timeout = \"wait\"\n", "", "of a call of `Bash`"),
        ("approvers = [\"the leads\"]", "", "not a valid group name"),
        ("on_timeout = \"wiat\"", "", "did you mean `wait`?"),
        ("remind_every = 5", "", "5 has no unit"),
        ("[[agents.approvals]]\ntools = []\n", "", "`approvals` without `tools` are for no tool"),
        ("[[agents.approvals]]\ntools = [\"Bash\"]\ntimout = \"5s\"\n", "", "did you mean `timeout`?"),
        (
            "",
            "[[policies]]\nname = \"house\"\n[[policies.approvals]]\ntools = [\"Bash\"]\nescalate_to = []\n",
            "policy `house`, `approvals` for `Bash`: `escalate_to` names nobody",
        ),
        ("", "[[presets]]\nname = \"x\"\nreleases = []\n", "preset `x` releases nothing"),
        ("", "[[presets]]\nname = \"x\"\nreleases = [{ tool = \"W*\" }]\n", "a preset takes no patterns"),
        (
            "",
            "[[presets]]\nname = \"x\"\nreleases = [{ tool = \"Write\", when = { n = { at_mots = 1 } } }]\n",
            "did you mean `at_most`?",
        ),
    ] {
        let error = place.fails(&config("", agent, rest));
        assert!(error.starts_with("error: ") && error.contains(says), "{agent}{rest}\n{error}");
    }
    let twice = place.fails(&config("", "", &format!("{PRESETS}{PRESETS}")));
    assert!(twice.contains("two presets are named `night`"), "{twice}");
    let loaded = place.load(&config("", "tools = [\"Read\"]", PRESETS)).unwrap();
    assert!(
        loaded.warnings[0].contains("preset `night`: the rule tool = \"Write\" can never apply"),
        "{:?}",
        loaded.warnings
    );
    // One that would have been stricter, under a name that no tool has, is as good as not there.
    let misspelt = "[[agents.approvals]]\ntools = [\"bash\"]\non_timeout = \"deny\"\n";
    let layer =
        "[[policies]]\nname = \"house\"\n[[policies.approvals]]\ntools = [\"Bsh\"]\non_timeout = \"deny\"\n";
    let loaded = place.load(&config("", misspelt, layer)).unwrap();
    for says in
        ["agent `main`: the rule approvals for `bash`", "policy `house`: the rule approvals for `Bsh`"]
    {
        assert!(loaded.warnings.iter().any(|warning| warning.starts_with(says)), "{:?}", loaded.warnings);
    }
}
