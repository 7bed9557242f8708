use super::*;

#[test]
fn the_report_says_what_the_expenses_add_up_to() {
    let (_, csv) = files::FILES[0];
    let cents: i64 = std::str::from_utf8(csv)
        .unwrap()
        .lines()
        .skip(1)
        .filter_map(|row| row.rsplit_once(';'))
        .filter(|(_, amount)| !amount.is_empty())
        .map(|(_, amount)| amount.replace(['.', ','], "").parse::<i64>().unwrap())
        .sum();
    assert_eq!(cents, 22_450);
    assert!(script::REPORT.contains("**224.50**"));
}

#[test]
fn what_the_script_wants_to_delete_is_there_and_one_of_them_should_stay() {
    for name in script::DELETE {
        assert!(files::FILES.iter().any(|(file, _)| *file == name), "{name:?}");
    }
    assert!(script::DELETE.contains(&"contract_signed.txt"));
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine.txt"), "x").unwrap();
    let error = files::make(Some(dir.path())).unwrap_err().to_string();
    assert!(error.contains("is not empty") && error.contains("hint:"), "{error}");
    assert_eq!(files::listing(dir.path()), ["mine.txt"]);
}
