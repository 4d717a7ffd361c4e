//! How fast this library reads a file and lists a directory: the counterpart of `bench/python.py`, which runs it.
//!
//! ```text
//! speed HOST:PORT read PATH        the whole file into new memory, as `file.read()` of Python
//! speed HOST:PORT stream PATH      piece by piece through one buffer
//! speed HOST:PORT names PATH       the names of a directory
//! speed HOST:PORT attributes PATH  the names with their attributes
//! ```
//!
//! For each line on standard input it works once, and prints how many nanoseconds that took, and how many bytes or
//! names there were.

use std::io::BufRead;

use frieze_client::{ByteRange, Client, Error, Fs, OpenFlags, Options, Target, mono};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [server, work, path] = &args[..] else {
        return Err("speed HOST:PORT read|stream|names|attributes PATH".into());
    };
    let client = Client::connect(Options { server: server.parse()?, ..Options::default() })?;
    let (fs, target) = (client.fs(), Target::path(path.as_bytes()));
    for line in std::io::stdin().lock().lines() {
        line?;
        let begin = mono();
        let count = once(&fs, work, &target)?;
        println!("{} {count}", mono().0 - begin.0);
    }
    Ok(())
}

fn once(fs: &Fs, work: &str, target: &Target) -> Result<u64, Error> {
    match work {
        "names" => Ok(fs.entries(target)?.len() as u64),
        "attributes" => Ok(fs.entries_with_attrs(target)?.len() as u64),
        "stream" => {
            let file = fs.open(target, OpenFlags::READ)?;
            file.read_stream(ByteRange::new(0, file.attr().size), 4, |_| Ok::<(), Error>(()))
        }
        _ => {
            let file = fs.open(target, OpenFlags::READ)?;
            let mut all = vec![0; file.attr().size as usize];
            Ok(file.read_at(0, &mut all)? as u64)
        }
    }
}
