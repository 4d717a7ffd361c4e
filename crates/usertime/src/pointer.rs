//! Finds the text at a JSON pointer (RFC 6901), as it is written: a number keeps every digit.
//!
//! Guarantees: the whole document is checked to be one; if an object has a name twice, the last one counts, as in other
//! parsers. Leaves to others: the meaning of the text.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The text at `pointer` in `document`; `None` if there is none.
///
/// # Errors
/// Why the bytes are not one JSON document.
pub(super) fn find<'a>(document: &'a [u8], pointer: &str) -> Result<Option<&'a str>, serde_json::Error> {
    let mut found = serde_json::from_slice::<&RawValue>(document)?.get();
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let mut reader = serde_json::Deserializer::from_str(found);
        let below = match found.as_bytes().first() {
            Some(b'{') => reader.deserialize_map(Member(&token))?,
            Some(b'[') => reader.deserialize_seq(Element(index_of(&token)))?,
            _ => None,
        };
        let Some(below) = below else { return Ok(None) };
        found = below.get();
    }
    Ok(Some(found))
}

/// The index that a token names: digits, without a zero in front.
fn index_of(token: &str) -> Option<usize> {
    let is_index = token == "0" || !token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit());
    is_index.then(|| token.parse().ok()).flatten()
}

/// Finds the member of this name.
struct Member<'t>(&'t str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(Named(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// True for a key that is this name, however it is escaped.
struct Named<'t>(&'t str);

impl<'de> serde::de::DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Finds the element at this index.
struct Element(Option<usize>);

impl<'de> Visitor<'de> for Element {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let (mut found, mut count) = (None, 0);
        while let Some(element) = elements.next_element::<&RawValue>()? {
            if self.0 == Some(count) {
                found = Some(element);
            }
            count += 1;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn a_pointer_leads_as_rfc_6901_says() {
        let document = br#" {"a": {"b": [1, {"c": 1.50e3}]}, "": 7, "x/y": 8, "m~n": 9, "twice": 1, "twice": 2,
            "esc": "\u0041"} "#;
        for (pointer, found) in [
            ("/a/b/0", Some("1")),
            ("/a/b/1/c", Some("1.50e3")),
            ("/a/b/01", None),
            ("/a/b/-", None),
            ("/a/b/2", None),
            ("/a/b/0/c", None),
            ("/a/x", None),
            ("/", Some("7")),
            ("/x~1y", Some("8")),
            ("/m~0n", Some("9")),
            ("/twice", Some("2")),
            ("/esc", Some(r#""\u0041""#)),
        ] {
            assert_eq!(find(document, pointer).unwrap(), found, "{pointer}");
        }
        assert_eq!(find(br#"{"\u0074": 5}"#, "/t").unwrap(), Some("5"), "a name that is written with escapes");
    }

    #[test]
    fn what_is_not_one_document_is_refused_wherever_the_fault_is() {
        for document in [&b"{\"t\": 1"[..], b"{\"t\": 1} x", b"{\"t\": 1, \"u\": 01}", b"", b"{\"t\": \xff}"] {
            assert!(find(document, "/t").is_err(), "{}", String::from_utf8_lossy(document));
        }
    }

    /// As the parser that makes a tree of the whole document, where that keeps every digit.
    #[test]
    fn it_finds_what_a_whole_tree_has() {
        let documents = [r#"[[1,2],[3,{"a":[null,true,"x"]}]]"#, r#"{"a":{"0":{"b":[{}]}}}"#, "5", "[]"];
        let pointers = ["", "/0", "/0/1", "/1/1/a/2", "/1/1/a/1", "/a", "/a/0", "/a/0/b/0", "/a/0/b/1"];
        for document in documents {
            let tree: serde_json::Value = serde_json::from_str(document).unwrap();
            for pointer in pointers {
                let found = find(document.as_bytes(), pointer).unwrap();
                let found: Option<serde_json::Value> = found.map(|text| serde_json::from_str(text).unwrap());
                assert_eq!(found.as_ref(), tree.pointer(pointer), "{document} {pointer}");
            }
        }
    }
}
