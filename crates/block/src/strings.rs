//! Interned strings: each distinct string is stored once and has a number.

use chronolith_base::hash::{HashTable, hash_bytes};

#[derive(Default)]
pub(crate) struct Strings {
    text: String,
    /// End of each string in `text`; it starts at the end of the one before.
    ends: Vec<usize>,
    by_text: HashTable<u32>,
}

impl Strings {
    pub(crate) fn get(&self, number: u32) -> &str {
        get(&self.text, &self.ends, number)
    }

    /// Returns the number of `text`: strings are numbered in order of their first occurrence.
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        let hash = hash_bytes(text.as_bytes());
        let (all, ends) = (&self.text, &self.ends);
        if let Some(&number) = self.by_text.find(hash, |&n| get(all, ends, n) == text) {
            return number;
        }
        let number = u32::try_from(self.ends.len()).expect("a block has fewer than 2^32 strings");
        self.text.push_str(text);
        self.ends.push(self.text.len());
        let (all, ends) = (&self.text, &self.ends);
        self.by_text.insert_unique(hash, number, |&n| hash_bytes(get(all, ends, n).as_bytes()));
        number
    }

    /// Frees the hash table: no string may be numbered afterwards.
    pub(crate) fn freeze(&mut self) {
        self.by_text = HashTable::new();
    }

    /// Number of strings.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn get<'a>(text: &'a str, ends: &[usize], number: u32) -> &'a str {
    let idx = number as usize;
    let start = idx.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start..ends[idx]]
}
