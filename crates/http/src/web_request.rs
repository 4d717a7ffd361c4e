//! A request's path and parameters, as WebHDFS defines them.
//!
//! Names of parameters are case-insensitive; of a repeated one the first counts; an unknown one is ignored. A malformed
//! value is refused, also if it is not needed.

use std::borrow::Cow;
use std::str::FromStr;

use frieze_hdfs::Exception;
use frieze_hdfs::proto::FsPermission;
use hyper::Method;
use percent_encoding::percent_decode_str;

/// Prefix of every path.
pub(crate) const PREFIX: &str = "/webhdfs/v1";

/// A request that names a file.
#[derive(Debug)]
pub(crate) struct WebRequest {
    /// The HTTP method.
    pub(crate) method: Method,
    /// The path of the file system: absolute, without escapes.
    pub(crate) path: String,
    /// The operation, in capitals.
    pub(crate) op: String,
    /// The query as the client wrote it, for redirects.
    pub(crate) raw_query: String,
    params: Vec<(String, String)>,
}

impl WebRequest {
    /// Parses the path and the query of a URL.
    ///
    /// # Errors
    /// `FileNotFoundException` for a path without the prefix; `IllegalArgumentException` for malformed escapes and
    /// values.
    pub(crate) fn read(method: &Method, path: &str, query: &str) -> Result<WebRequest, Exception> {
        let escaped = path.strip_prefix(PREFIX).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let escaped = escaped
            .ok_or_else(|| Exception::not_found(format!("there is nothing here but {PREFIX}/PATH?op=OPERATION")))?;
        must_be_escaped_well(escaped)?;
        must_be_escaped_well(query)?;
        let path =
            percent_decode_str(escaped).decode_utf8().map_err(|_| Exception::argument("the path is not UTF-8"))?;
        let path = if path.is_empty() { "/".to_owned() } else { path.into_owned() };
        let named = |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.to_ascii_lowercase(), value.into_owned());
        let params = form_urlencoded::parse(query.as_bytes()).map(named).collect();
        let mut web_request =
            WebRequest { method: method.clone(), path, op: String::new(), raw_query: query.to_owned(), params };
        web_request.op = web_request.text("op").unwrap_or_default().to_ascii_uppercase();
        web_request.check_numbers()?;
        Ok(web_request)
    }

    /// A parameter; `None` if it is absent or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(crate) fn texts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.params
            .iter()
            .filter(move |(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// A parameter that is required.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Exception> {
        self.text(name).ok_or_else(|| Exception::argument(format!("the parameter {name} is missing, or empty")))
    }

    /// A number; `None` if it is absent, or `null`.
    pub(crate) fn number<N: FromStr>(&self, name: &str) -> Result<Option<N>, Exception> {
        let Some(text) = self.text(name).filter(|text| *text != "null") else { return Ok(None) };
        text.parse().map(Some).map_err(|_| invalid(name, text, "it is no such number"))
    }

    /// A boolean.
    pub(crate) fn flag(&self, name: &str, otherwise: bool) -> Result<bool, Exception> {
        match self.text(name) {
            None => Ok(otherwise),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(text) => Err(invalid(name, text, "it is true or false")),
        }
    }

    /// Permission bits.
    pub(crate) fn permission(&self, otherwise: u32) -> Result<u32, Exception> {
        Ok(self.mode("permission")?.unwrap_or(otherwise))
    }

    /// The mode without the umask, which counts where a default list applies.
    pub(crate) fn unmasked(&self) -> Result<Option<FsPermission>, Exception> {
        Ok(self.mode("unmaskedpermission")?.map(|perm| FsPermission { perm }))
    }

    fn mode(&self, name: &str) -> Result<Option<u32>, Exception> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let is_octal = text.bytes().all(|byte| (b'0'..b'8').contains(&byte));
        let bits = u32::from_str_radix(text, 8).ok().filter(|&bits| is_octal && bits <= 0o1777);
        bits.map(Some).ok_or_else(|| invalid(name, text, "it is an octal number up to 1777"))
    }

    /// Numbers that no operation accepts.
    fn check_numbers(&self) -> Result<(), Exception> {
        let is_size = |size: Option<u64>| size.is_none_or(|size| i64::try_from(size).is_ok());
        for name in ["offset", "length", "newlength", "blocksize"] {
            if !is_size(self.number(name)?) {
                return Err(invalid(name, self.text(name).unwrap_or_default(), "it is too large"));
            }
        }
        for name in ["buffersize", "blocksize", "replication"] {
            if self.number::<u64>(name)? == Some(0) {
                return Err(invalid(name, "0", "it is above 0"));
            }
        }
        for name in ["overwrite", "recursive", "createparent", "noredirect", "data"] {
            self.flag(name, false)?;
        }
        self.permission(0).map(|_| ())
    }
}

/// The exception for a malformed value.
pub(crate) fn invalid(name: &str, value: &str, why: &str) -> Exception {
    let shown: String = value.chars().take(SHOWN_CHARS).collect();
    Exception::argument(format!("Invalid value for webhdfs parameter \"{name}\": {shown}: {why}"))
}

fn must_be_escaped_well(text: &str) -> Result<(), Exception> {
    let mut parts = text.split('%');
    parts.next();
    let is_hex = |part: &str| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    match parts.find(|part| !is_hex(part)) {
        Some(part) => {
            let shown: String = part.chars().take(2).collect();
            Err(Exception::argument(format!("%{shown} is no escape: behind a % come two hexadecimal digits")))
        }
        None => Ok(()),
    }
}

/// Characters of a refused value in its exception.
const SHOWN_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, query: &str) -> Result<WebRequest, Exception> {
        WebRequest::read(&Method::GET, path, query)
    }

    #[test]
    fn a_path_is_what_stands_behind_the_prefix_without_escapes() {
        let path = |path: &str| read(path, "op=OPEN").unwrap().path;
        assert_eq!(path("/webhdfs/v1"), "/");
        assert_eq!(path("/webhdfs/v1/"), "/");
        assert_eq!(path("/webhdfs/v1/a+b%20c/%C3%A9"), "/a+b c/é");
        assert_eq!(path("/webhdfs/v1/a%253Ab"), "/a%3Ab", "once");
        for wrong in
            ["/", "/webhdfs", "/webhdfs/v2/a", "/webhdfs/v1a", "/webhdfs/v1/%", "/webhdfs/v1/%zz", "/webhdfs/v1/%ff"]
        {
            assert!(read(wrong, "op=OPEN").is_err(), "{wrong}");
        }
    }

    #[test]
    fn parameters_have_a_case_of_no_meaning_and_the_first_counts() {
        let web_request = read("/webhdfs/v1/a", "OP=open&user.name=a%20b+c&User.Name=x&empty=").unwrap();
        assert_eq!(
            (web_request.op.as_str(), web_request.text("user.name"), web_request.text("empty")),
            ("OPEN", Some("a b c"), None)
        );
        let web_request = read("/webhdfs/v1/a", "xattr.name=user.a&xattr.name=user.b").unwrap();
        assert_eq!(web_request.texts("xattr.name").collect::<Vec<_>>(), ["user.a", "user.b"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_even_where_it_is_not_needed() {
        for query in [
            "offset=-1",
            "offset=x",
            "offset=18446744073709551615",
            "length=1.5",
            "newlength=-2",
            "blocksize=0",
            "buffersize=0",
            "buffersize=-4",
            "replication=0",
            "overwrite=yes",
            "recursive=1",
            "noredirect=maybe",
            "permission=9",
            "permission=2000",
            "permission=-1",
            "permission=%2B7",
            "a=%",
            "a=%4",
            "a=%zz",
        ] {
            let refused = read("/webhdfs/v1/a", query).expect_err(query);
            assert_eq!(refused.class, "java.lang.IllegalArgumentException", "{query}");
        }
        assert_eq!(read("/webhdfs/v1/a", "length=null&offset=7").unwrap().number::<u64>("length"), Ok(None));
        assert_eq!(read("/webhdfs/v1/a", "permission=0755").unwrap().permission(0), Ok(0o755));
    }

    #[test]
    fn any_text_is_a_request_or_an_exception() {
        let seeds = [
            "/webhdfs/v1/a%20b/c?op=OPEN&offset=10&length=null&user.name=ann",
            "/webhdfs/v1?op=SETPERMISSION&permission=1777&noredirect=true&xattr.name=a&xattr.name=b",
            "/webhdfs/v1/%E2%82%AC?op=CREATE&unmaskedpermission=755&replication=0",
        ];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            let Ok(request) = WebRequest::read(&Method::GET, path, query) else { return };
            assert!(request.path.starts_with('/') && request.op == request.op.to_ascii_uppercase());
            for name in ["op", "offset", "user.name"] {
                assert_eq!(request.required(name).ok(), request.text(name));
                let _number_or_refused = request.number::<u64>(name);
            }
            assert!(request.permission(0).is_ok_and(|bits| bits <= 0o1777), "it was checked when it was read");
        });
    }
}
