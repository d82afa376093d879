//! Tells METIS graphs from edge lists, whose lines can look alike: a graph of vertices with two neighbours each is, but
//! for its meaning, a list of edges.
//!
//! The first line has the numbers of vertices and edges and perhaps what else the others have; line `i` behind it has
//! the neighbours of vertex `i`, from 1 (Karypis, METIS manual 5.1, section 4.1.1).

use super::line::{Line, is_blank, without_end};
use super::number::parse_unsigned;

/// Pairs of neighbours that must name each other where not all lines are seen.
const ENOUGH_PAIRS: usize = 8;

/// Whether `text`, the beginning of a file or all of it, is a METIS graph beyond doubt: no vertex is its own neighbour,
/// and neighbours name each other wherever the lines of both are seen.
pub(super) fn is_metis(text: &[u8], is_whole: bool) -> bool {
    let mut lines = text.split_inclusive(|&byte| byte == b'\n');
    let Some(header) = lines.find(|line| !is_comment(line)).and_then(numbers) else { return false };
    let &[vertices, edges, ref form @ ..] = &header[..] else { return false };
    let Some((skipped, step)) = layout(form) else { return false };
    let mut neighbours = Vec::new();
    for line in lines.filter(|line| !is_comment(line)) {
        if !is_whole && !line.ends_with(b"\n") {
            break;
        }
        let vertex = neighbours.len() as u64 + 1;
        let Some(mut words) = numbers(line) else { return false };
        if vertex > vertices {
            // Blank lines may follow.
            match words.is_empty() {
                true => continue,
                false => return false,
            }
        }
        if words.len() < skipped || !(words.len() - skipped).is_multiple_of(step) {
            return false;
        }
        words = words[skipped..].iter().copied().step_by(step).collect();
        if words.iter().any(|&other| other == 0 || other > vertices || other == vertex) {
            return false;
        }
        neighbours.push(words);
    }
    let seen = |vertex: u64| usize::try_from(vertex - 1).ok().and_then(|at| neighbours.get(at));
    let mut pairs = 0;
    for (vertex, others) in (1u64..).zip(&neighbours) {
        for list in others.iter().filter_map(|&other| seen(other)) {
            if !list.contains(&vertex) {
                return false;
            }
            pairs += 1;
        }
    }
    if is_whole {
        let named: usize = neighbours.iter().map(Vec::len).sum();
        edges > 0 && neighbours.len() as u64 == vertices && edges.checked_mul(2) == Some(named as u64)
    } else {
        pairs >= ENOUGH_PAIRS
    }
}

/// Numbers in front of the neighbours of each line, and from one neighbour to the next; `form` is what the first line
/// has behind the numbers of vertices and edges.
fn layout(form: &[u64]) -> Option<(usize, usize)> {
    let (flags, constraints) = match *form {
        [] => (0, 0),
        [flags] => (flags, 1),
        [flags, constraints] => (flags, usize::try_from(constraints).ok()?),
        _ => return None,
    };
    let digit = |place: u64| Some(flags / place % 10).filter(|&digit| digit < 2);
    let (sizes, weights, of_edges) = (digit(100)?, digit(10)?, digit(1)?);
    let skipped = usize::from(sizes == 1).checked_add(if weights == 1 { constraints } else { 0 })?;
    (flags < 112).then_some((skipped, if of_edges == 1 { 2 } else { 1 }))
}

fn is_comment(line: &[u8]) -> bool {
    without_end(line).iter().find(|&&byte| !is_blank(byte)) == Some(&b'%')
}

/// The numbers of a line; `None` if it has anything else.
fn numbers(line: &[u8]) -> Option<Vec<u64>> {
    let mut words = Line::new(line);
    std::iter::from_fn(|| words.token()).map(|word| parse_unsigned(word.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_known_by_neighbours_that_name_each_other() {
        for (text, what) in [
            (&b"3 3\n2 3\n1 3\n1 2\n"[..], "a triangle"),
            (b"% by hand\n3 3\r\n2 3\r\n1 3\r\n1 2", "the same"),
            (b"5 3\n2 5\n1 5\n\n\n1 2\n\n", "two vertices without neighbours"),
            (b"3 2\n2\n1 3\n2\n", "a path"),
            (b"3 2 1\n2 7\n1 7 3 9\n2 9\n", "with weights of edges"),
            (b"3 2 11\n5 2 7\n5 1 7 3 9\n5 2 9\n", "and of vertices"),
            (b"3 2 10 2\n5 6 2\n5 6 1 3\n5 6 2\n", "two of vertices"),
        ] {
            assert!(is_metis(text, true), "{what}");
        }
    }

    #[test]
    fn edge_lists_are_none() {
        for (text, what) in [
            (&b"0 1\n1 2\n"[..], "ids from 0"),
            (b"3 3\n1 2\n2 3\n3 1\n", "vertex 1 would be its own neighbour"),
            (b"3 3\n2 3\n1 3\n1 2\n2 1\n", "a line too many"),
            (b"4 3\n2 3\n1 3\n1 2\n", "a line too few"),
            (b"3 2\n2 3\n1 3\n1 2\n", "another number of edges"),
            (b"3 3\n2 3\n1 3\n1 4\n", "a vertex too many"),
            (b"4 3\n2 3\n4 3\n1 2\n1 2\n", "1 does not name 3 back"),
            (b"# 3 3\n3 3\n2 3\n1 3\n1 2\n", "a comment of edge lists"),
            (b"3 3 0.5\n2 3 1\n1 3 1\n1 2 1\n", "values"),
            (b"1 0\n\n", "no edges"),
            (b"3 3 111 18446744073709551615\n2 3\n1 3\n1 2\n", "more weights than there are numbers"),
            (b"", "nothing"),
        ] {
            assert!(!is_metis(text, true), "{what}");
        }
    }

    #[test]
    fn the_beginning_does() {
        let mut ring = "1000 1000\n".to_owned();
        for vertex in 0..1000 {
            ring += &format!("{} {}\n", (vertex + 999) % 1000 + 1, (vertex + 1) % 1000 + 1);
        }
        // The last line is cut within a number.
        assert!(is_metis(&ring.as_bytes()[..202], false));
        assert!(!is_metis(b"1000 1000\n1000 2\n1 3\n2 4\n", false), "too few pairs to be sure");
        assert!(!is_metis(b"1000 5\n7 9\n8 3\n", false));
    }
}
