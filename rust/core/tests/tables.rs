//! Cells and records of text, against slow readers of characters.

use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::tables::{CellReader, Fault, RecordEnds, Slot, TextFormat};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::fmt::Write;

fn format(decimal: u8) -> TextFormat {
    TextFormat {
        delimiter: b';',
        quote: Some(b'"'),
        decimal,
        missing: vec![b"NA".to_vec(), Vec::new(), b"-9".to_vec()],
    }
}

/// One column of numbers.
fn numbers(text: &str, decimal: u8) -> Result<Vec<f32>, (usize, Fault)> {
    let reader = CellReader::new(format(decimal), vec![Slot::Feature(0)], 1).unwrap();
    let mut found = vec![0.0; CellReader::max_rows(text.as_bytes())];
    let block = reader.read(text.as_bytes(), &mut found, &Never).unwrap();
    found.truncate(block.n_rows);
    block
        .fault
        .map_or(Ok(found), |(_, fault)| Err((block.n_rows, fault)))
}

#[test]
fn numbers_are_rounded_once() {
    let mut random = ChaCha20Rng::seed_from_u64(1);
    for _ in 0..200_000 {
        let mut text = String::new();
        if random.random_range(0..3) == 0 {
            // Between two neighbours in single precision, or beside it by a little.
            let low = f32::from_bits(random.random_range(0x3000_0000..0x5000_0000));
            let middle = f64::midpoint(f64::from(low), f64::from(low.next_up()));
            text = format!("{middle:.*}", random.random_range(0..24));
        } else {
            text.push_str(["", "-", "+"][random.random_range(0..3)]);
            for place in 0..random.random_range(1..24) {
                let mark = if place == 3 { '.' } else { '0' };
                text.push(if mark == '.' {
                    mark
                } else {
                    char::from(random.random_range(b'0'..=b'9'))
                });
            }
            if random.random_range(0..4) == 0 {
                write!(text, "e{}", random.random_range(-60..50)).unwrap();
            }
        }
        let expected: f32 = text.parse().unwrap();
        for (decimal, cell) in [(b'.', text.clone()), (b',', text.replace('.', ","))] {
            let found = numbers(&format!("{cell}\n"), decimal).unwrap();
            let expected = if text == "-9" { f32::NAN } else { expected };
            assert_eq!(found[0].to_bits(), expected.to_bits(), "{cell}");
        }
    }
}

#[test]
fn cells_that_are_no_numbers_are_told() {
    for cell in [
        "x", "1,5", "1_0", "0x1p3", "1 2", "-", ".", "1.2.3", "--1", "e5",
    ] {
        let found = numbers(&format!("1\n{cell}\n2\n"), b'.');
        assert_eq!(found, Err((1, Fault::Number)), "{cell}");
    }
    assert_eq!(numbers("1.5\n", b','), Err((0, Fault::Number)));
    let found = numbers("NA\r\n-9\n\" 2.5 \"\n\t-0\n\n-inf", b'.').unwrap();
    assert!(found[0].is_nan() && found[1].is_nan() && found[4].is_nan());
    assert_eq!(found[2..4], [2.5, 0.0]);
    assert_eq!(found[5], f32::NEG_INFINITY);
}

/// Cells of each record, a character after the other.
fn slow_records(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let (mut records, mut record, mut cell) = (Vec::new(), Vec::new(), Vec::new());
    let (mut inside, mut at_start, mut at) = (false, true, 0);
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if inside {
            if byte != b'"' {
                cell.push(byte);
            } else if text.get(at) == Some(&b'"') {
                cell.push(byte);
                at += 1;
            } else {
                inside = false;
            }
            continue;
        }
        if byte == b'"' && at_start {
            (inside, at_start) = (true, false);
        } else if byte == b';' {
            record.push(std::mem::take(&mut cell));
            at_start = true;
        } else if byte == b'\n' || byte == b'\r' {
            record.push(std::mem::take(&mut cell));
            if at_start && record.len() == 1 {
                record.clear();
            } else {
                records.push(std::mem::take(&mut record));
            }
            at_start = true;
        } else {
            cell.push(byte);
            at_start = false;
        }
    }
    if !at_start || !record.is_empty() {
        record.push(cell);
        records.push(record);
    }
    records
}

#[test]
fn words_are_those_of_a_slow_reader() {
    let mut random = ChaCha20Rng::seed_from_u64(2);
    let reader = CellReader::new(
        format(b'.'),
        vec![Slot::Word(0), Slot::Ignored, Slot::Word(1)],
        1,
    );
    let reader = reader.unwrap();
    let (mut whole, mut wrong) = (0, 0);
    for _ in 0..100_000 {
        let text: Vec<u8> = (0..random.random_range(1..40))
            .map(|_| b"\"\";;;\nx\ry"[random.random_range(0..9)])
            .collect();
        let most = random.random_range(1..4);
        let expected = slow_records(&text);
        let mut features = vec![0.0; most];
        let (mut seen, mut start) = (0, 0);
        loop {
            let block = reader.read(&text[start..], &mut features, &Never).unwrap();
            for row in 0..block.n_rows {
                let record = &expected[seen + row];
                assert_eq!(record.len(), 3);
                for (j, place) in [(0, 0), (1, 2)] {
                    let word = &block.words[j][block.codes[2 * row + j] as usize];
                    assert_eq!(&word[..], &record[place][..]);
                }
            }
            seen += block.n_rows;
            start += block.end;
            whole += block.n_rows;
            if let Some((_, fault)) = block.fault {
                assert_eq!(fault, Fault::Cells(expected[seen].len()));
                wrong += 1;
                break;
            }
            if block.n_rows == 0 {
                assert_eq!(seen, expected.len());
                break;
            }
        }
    }
    assert!(whole > 5_000 && wrong > 5_000);
}

#[test]
fn words_that_are_no_text_are_told() {
    let reader = CellReader::new(format(b'.'), vec![Slot::Feature(0), Slot::Word(0)], 1).unwrap();
    let mut features = [0.0; 3];
    let block = reader
        .read(b"1;a\n2;\xff\n", &mut features, &Never)
        .unwrap();
    assert_eq!((block.n_rows, block.fault), (1, Some((1, Fault::Text))));
    let block = reader.read(b"\xff;a\n", &mut features, &Never).unwrap();
    assert_eq!((block.n_rows, block.fault), (0, Some((0, Fault::Text))));
}

#[test]
fn columns_beyond_the_row_are_refused() {
    assert!(CellReader::new(format(b'.'), vec![Slot::Feature(1)], 1).is_err());
    assert!(CellReader::new(format(b'.'), Vec::new(), 1).is_err());
}

#[test]
fn pieces_do_not_change_where_records_end() {
    let mut random = ChaCha20Rng::seed_from_u64(3);
    for _ in 0..20_000 {
        let text: Vec<u8> = (0..random.random_range(1..40))
            .map(|_| b"\"\";;;\nx\ry"[random.random_range(0..9)])
            .collect();
        let mut whole = RecordEnds::new(Some(b'"'), b';');
        let (_, expected) = whole.next(&text);
        let mut pieces = RecordEnds::new(Some(b'"'), b';');
        let (mut last, mut at) = (0, 0);
        while at < text.len() {
            let to = (at + random.random_range(1..9)).min(text.len());
            let (_, end) = pieces.next(&text[at..to]);
            last = if end > 0 { at + end } else { last };
            at = to;
        }
        assert!(last <= expected);
        assert_eq!(pieces.end_inside(), whole.end_inside());
        assert_eq!(
            slow_records(&text[..expected]).len() + slow_records(&text[expected..]).len(),
            slow_records(&text).len()
        );
    }
}
