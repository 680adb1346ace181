//! The rule by its table; conversions keep every bit; a record is either XOR or decimal-delta.

use chronolith_base::Rng;
use chronolith_model::sample::STALE_NAN_BITS;

use super::super::{ENCODING_DECIMAL_DELTA, Misfit, decode};
use super::*;
use crate::chunk::xor::{CHUNK_BYTES_MAX, ENCODING_XOR, SAMPLES_PER_CHUNK};

const EVERYTHING: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Decodes a chunk in the encoding of its state.
fn decoded(state: &OpenState, bytes: &[u8]) -> (Vec<i64>, Vec<u64>) {
    let mut out = Columns::default();
    match state.encoding() {
        ENCODING_XOR => xor::decode(bytes, EVERYTHING, &mut out).unwrap(),
        _ => decode(bytes, EVERYTHING, &mut out).unwrap(),
    }
    (out.times, bits(&out.values))
}

/// Samples of a noisy gauge; `power` is the power of ten of its decimals.
fn gauge(rng: &Rng, count: usize, power: f64) -> (Vec<i64>, Vec<f64>) {
    let value = |_| ((50.0 + rng.below(1 << 20) as f64 / (1 << 17) as f64) * power).round() / power;
    ((0..count as i64).map(|i| 1_700_000_000_000 + 15_000 * i).collect(), (0..count).map(value).collect())
}

#[test]
fn the_rule_takes_what_saves_an_eighth() {
    for (xor_bytes, decimal_bytes, want) in
        [(80, 70, true), (80, 71, false), (800, 200, true), (38, 38, false), (0, 0, true)]
    {
        assert_eq!(saves_enough(xor_bytes, decimal_bytes), want, "{xor_bytes} {decimal_bytes}");
    }
}

#[test]
fn a_conversion_is_due_once_and_for_noise_only() {
    let due = |values: &dyn Fn(i64) -> f64| -> Vec<u16> {
        let (mut state, mut buf) = (XorState::new(), [0; CHUNK_BYTES_MAX + SAMPLE_BYTES_MAX]);
        let mut counts = Vec::new();
        for i in 0..SAMPLES_PER_CHUNK as i64 {
            state.append(&mut buf, 1_700_000_000_000 + 15_000 * i, values(i));
            if is_conversion_due(&state) {
                counts.push(state.count());
            }
        }
        counts
    };
    assert!(due(&|_| 42.5).is_empty(), "constant");
    assert!(due(&|i| if i < 8 { 1.0 } else { 2.0 }).is_empty(), "one change");
    assert_eq!(due(&|i| ((i * 7919) % 1000) as f64 / 100.0), [CONVERSION_COUNT], "noise");
}

#[test]
fn conversion_keeps_every_bit_or_is_declined() {
    let rng = Rng::from_seed(5);
    let check = |values: &[f64], want: Option<u8>| {
        let times: Vec<i64> = (0..values.len() as i64).map(|i| 1_700_000_000_000 + 15_000 * i).collect();
        let chunk = xor::encode_whole(&times, values);
        let (mut scratch, mut out) = (Columns::default(), vec![1, 2, 3]);
        let state = convert(&chunk, &mut scratch, &mut out).unwrap();
        assert_eq!(state.map(|state| state.scale().code()), want);
        if let Some(state) = state {
            assert_eq!(DecimalDeltaState::resume(&out), Ok(state));
            assert_eq!(decoded(&state.into(), &out), (times, bits(values)));
            assert!(saves_enough(chunk.len(), out.len()));
        }
    };
    check(&gauge(&rng, 16, 100.0).1, Some(2));
    check(&gauge(&rng, 16, 1e6).1, Some(6));
    check(&[7.0; 16], Some(0));
    check(&(0..16).map(|i| (i as f64).sqrt()).collect::<Vec<_>>(), None);
    let (_, mut ended) = gauge(&rng, 16, 100.0);
    ended[15] = f64::from_bits(STALE_NAN_BITS);
    check(&ended, None);
    assert!(convert(&[0, 9, 1], &mut Columns::default(), &mut Vec::new()).is_err());
}

#[test]
fn a_refused_value_takes_a_finer_scale_or_xor() {
    let rng = Rng::from_seed(6);
    let (times, mut values) = gauge(&rng, 60, 100.0);
    let mut out = Vec::new();
    let check = |values: &[f64], out: &mut Vec<u8>, encoding: u8| {
        let state = reencode(&times, values, out);
        assert_eq!(state.encoding(), encoding);
        assert_eq!((state.count(), state.byte_len()), (60, out.len()));
        assert_eq!(decoded(&state, out), (times.clone(), bits(values)));
        state
    };
    let state = check(&values, &mut out, ENCODING_DECIMAL_DELTA);
    assert_eq!(state.next_chunk(0.125).encoding(), ENCODING_XOR, "a value that does not fit");
    let next = state.next_chunk(0.25).as_decimal_delta().unwrap();
    assert_eq!((next.scale(), next.count(), next.byte_len()), (Scale::from_code(2).unwrap(), 0, 0));
    values[59] = 50.125;
    let state = check(&values, &mut out, ENCODING_DECIMAL_DELTA);
    assert_eq!(state.as_decimal_delta().unwrap().scale().code(), 3);
    values[59] = -0.0;
    let state = check(&values, &mut out, ENCODING_XOR);
    assert_eq!(state.next_chunk(1.0), XorState::new().into());
}

#[test]
fn times_outside_of_the_data_model_stay_xor() {
    let times: Vec<i64> = (0..16).map(|i| i64::MIN + i).collect();
    let values: Vec<f64> = (0..16).map(|i| f64::from(i * 7919 % 100)).collect();
    let chunk = xor::encode_whole(&times, &values);
    assert_eq!(convert(&chunk, &mut Columns::default(), &mut Vec::new()), Ok(None));
}

/// As the head keeps a chunk: in links of 60 bytes, with the state in its record.
#[test]
fn a_record_appends_in_the_encoding_of_its_chunk() {
    let (times, values) = gauge(&Rng::from_seed(9), 120, 100.0);
    let decimal = DecimalDeltaState::new(Scale::of(&values).unwrap());
    for start in [OpenState::from(XorState::new()), decimal.into()] {
        let mut state = start;
        let mut buf = vec![0xa5; CHUNK_BYTES_MAX + SAMPLE_BYTES_MAX];
        for (&time, &value) in times.iter().zip(&values) {
            let base = state.byte_len().saturating_sub(1) / 60 * 60;
            assert!(base + state.byte_len_needed() <= buf.len());
            state.append_part(&mut buf[base..], base, time, value).unwrap();
            assert_eq!((state.time(), state.value_bits()), (time, value.to_bits()));
            assert_eq!(OpenState::from_bytes(&state.to_bytes()), Ok(state));
        }
        assert_eq!((state.encoding(), state.step_ms()), (start.encoding(), 15_000));
        assert_eq!(state.as_xor().is_some(), state.as_decimal_delta().is_none());
        buf[..2].copy_from_slice(&state.count().to_be_bytes());
        assert_eq!(decoded(&state, &buf[..state.byte_len()]), (times.clone(), bits(&values)));
        let before = state;
        let refused = state.append_part(&mut buf, 0, times[119] + 1, f64::NAN);
        let want = if start == decimal.into() { Err(Misfit) } else { Ok(()) };
        assert_eq!((refused, refused.is_err()), (want, state == before));
    }
}

#[test]
fn forged_records_are_refused() {
    let mut state = DecimalDeltaState::new(Scale::of(&[1.5]).unwrap());
    state.append(&mut [0; 100], 5, 1.5).unwrap();
    for (at, byte) in [(26, 9), (28, 0), (30, 0xa0), (30, 0x40), (31, 161), (15, 0x7f)] {
        let mut bytes = state.to_bytes();
        bytes[at] = byte;
        assert!(OpenState::from_bytes(&bytes).is_err(), "byte {at}");
    }
    assert!(OpenState::from_bytes(&state.to_bytes()[..31]).is_err());
}
