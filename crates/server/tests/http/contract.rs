//! The published contract matches the code: `docs/openapi.json` is generated from it and compared with it.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::bed::Bed;

fn committed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

#[test]
fn the_committed_contract_is_the_present_one() {
    let contract = format!("{}\n", tenure_server::openapi());
    if std::env::var_os("UPDATE_CONTRACT").is_some() {
        fs::write(committed(), &contract).unwrap();
    }
    let known = fs::read_to_string(committed()).unwrap_or_default();
    assert!(
        known == contract,
        "the contract changed: run this test with UPDATE_CONTRACT=1 and look at the diff"
    );
}

#[test]
fn every_operation_is_described_and_says_how_it_refuses() {
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            for status in ["400", "401", "403", "404", "409", "413", "415", "421", "422", "429", "500", "503"]
            {
                let content = &operation["responses"][status]["content"];
                assert!(content.is_object(), "{method} {path} says nothing of {status}");
            }
        }
    }
}

#[test]
fn every_reference_in_the_contract_leads_somewhere() {
    let text = tenure_server::openapi();
    let contract: Value = serde_json::from_str(&text).unwrap();
    let names = text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap());
    let lost: Vec<&str> =
        names.filter(|name| contract["components"]["schemas"].get(name).is_none()).collect();
    assert!(lost.is_empty(), "no schema is there for {lost:?}");
}

/// The tables of the page contain every route with its scope and every code with its status.
#[test]
fn the_reference_page_matches_the_contract() {
    let page = fs::read_to_string(committed().with_file_name("http.md")).unwrap();
    let contract: Value = serde_json::from_str(&tenure_server::openapi()).unwrap();
    let mut missing = Vec::new();
    let mut rows = 0;
    let mut expect = |row: String| {
        rows += 1;
        if !page.contains(&row) {
            missing.push(row);
        }
    };
    for (path, item) in contract["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let scopes = operation["security"][0].get("token").map(|scopes| scopes[0].as_str());
            let needs = match scopes {
                None => "public".to_owned(),
                Some(None) => "any token".to_owned(),
                Some(Some(scope)) => format!("`{scope}`"),
            };
            expect(format!("| `{} {path}` | {needs} |", method.to_uppercase()));
        }
    }
    for (status, response) in contract["paths"]["/v1/work"]["post"]["responses"].as_object().unwrap() {
        let codes = response["description"].as_str().unwrap().strip_prefix("Refused: ");
        for code in codes.into_iter().flat_map(|codes| codes.trim_end_matches('.').split(", ")) {
            expect(format!("| `{code}` | {status} |"));
        }
    }
    assert!(rows > 70 && missing.is_empty(), "docs/http.md lacks {missing:#?}");
}

#[tokio::test]
async fn the_contract_its_page_and_the_health_routes_are_public() {
    let bed = Bed::memory().await;
    let mut stranger = bed.admin();
    stranger.token = "none".into();
    let contract = stranger.get("/openapi.json").await.expect(200);
    assert_eq!(contract["info"]["title"], "Tenure");
    let page = stranger.get("/docs").await;
    assert!(page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let page = page.expect(200);
    assert!(!page.as_str().unwrap().contains("://"), "nothing is loaded from elsewhere");
    stranger.get("/docs/page.js").await.expect(200);
    stranger.get("/docs/page.css").await.expect(200);
    assert_eq!(stranger.get("/healthz").await.expect(200)["status"], "ok");
    assert_eq!(stranger.get("/readyz").await.expect(200)["ready"], true);
}
