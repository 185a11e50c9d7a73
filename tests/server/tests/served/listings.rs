//! Listings: prefixes, delimiters, pages.

use crate::{Served, refused};

fn filled(keys: &[&str]) -> Served {
    let mut served = Served::plain();
    for key in keys {
        served.put(key, key.as_bytes());
    }
    served
}

#[test]
fn prefixes_starts_and_delimiters() {
    let mut served = filled(&["a/1", "a/2", "a/b/3", "a/c/4", "a0", "b"]);
    for (query, keys, folders) in [
        ("", vec!["a/1", "a/2", "a/b/3", "a/c/4", "a0", "b"], vec![]),
        ("&prefix=a/", vec!["a/1", "a/2", "a/b/3", "a/c/4"], vec![]),
        ("&prefix=a%2F&start-after=a%2F1", vec!["a/2", "a/b/3", "a/c/4"], vec![]),
        ("&prefix=a/&delimiter=/", vec!["a/1", "a/2"], vec!["a/b/", "a/c/"]),
        ("&delimiter=/", vec!["a0", "b"], vec!["a/"]),
        ("&prefix=none", vec![], vec![]),
        ("&start-after=zz", vec![], vec![]),
    ] {
        let listed = served.list(query);
        assert_eq!(listed.elements("Key"), keys, "{query}");
        let common = listed.elements("CommonPrefixes").join("");
        let expected = folders.iter().map(|folder| format!("<Prefix>{folder}</Prefix>"));
        assert_eq!(common, expected.collect::<String>(), "{query}");
        assert_eq!(listed.element("IsTruncated").as_deref(), Some("false"));
    }
    let listed = served.list("&prefix=a/b");
    assert_eq!(listed.element("Size").as_deref(), Some("5"));
    assert_eq!(listed.element("ETag"), served.get("a/b/3").header("etag").map(str::to_owned));
}

#[test]
fn pages_are_complete() {
    let keys: Vec<String> = (0..25).map(|n| format!("k/{}/{n:02}", n / 5)).collect();
    let mut served = filled(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    for (query, tag, expected) in [("", "Key", 25), ("&prefix=k/&delimiter=/", "CommonPrefixes", 5)]
    {
        for most in [1, 2, 7, 1000] {
            let (mut found, mut token) = (Vec::new(), String::new());
            loop {
                let page = served.list(&format!("{query}&max-keys={most}{token}"));
                found.extend(page.elements(tag));
                let Some(next) = page.element("NextContinuationToken") else { break };
                token = format!("&continuation-token={}", next.replace(' ', "%20"));
            }
            assert_eq!(found.len(), expected, "{query} by {most}");
            assert!(found.is_sorted(), "{found:?}");
        }
    }
    let reply = served.list("&continuation-token=expired");
    assert_eq!(refused(&reply), (400, "InvalidArgument".to_owned()));
}

#[test]
fn keys_of_all_characters_are_listed() {
    let mut served = filled(&["a%26b%3Cc", "%C3%A9", "a%2Bb"]);
    assert_eq!(served.list("").elements("Key"), ["a&amp;b&lt;c", "a+b", "é"]);
    let encoded = served.list("&encoding-type=url");
    assert_eq!(encoded.elements("Key"), ["a%26b%3Cc", "a%2Bb", "%C3%A9"]);
}
