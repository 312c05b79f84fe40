//! Responses that hold a permit until their bytes have left memory: sent, or dropped with their connection. A
//! peer that does not read keeps the permit of its response.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    response::Response,
};
use http_body::{Frame, SizeHint};

/// Long responses are passed on in pieces of this size, so that no layer below copies the whole.
const PIECE: usize = 64 * 1024;

/// The length of a buffered response; a stream has none, and is not in memory.
pub(crate) fn length(response: &Response) -> Option<u64> {
    response.body().size_hint().exact()
}

/// The response, holding `what`.
pub(crate) fn holding<T: Send + Sync + 'static>(response: Response, what: T) -> Response {
    let what = Arc::new(what);
    response.map(|inner| Body::new(BodyWithPermit { inner, rest: Bytes::new(), what }))
}

struct BodyWithPermit<T> {
    inner: Body,
    /// The rest of the last frame.
    rest: Bytes,
    what: Arc<T>,
}

/// Bytes of a response. Slices of them share this, and the last one drops the permit.
struct Piece<T> {
    bytes: Bytes,
    _what: Arc<T>,
}

impl<T> AsRef<[u8]> for Piece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T: Send + Sync + 'static> HttpBody for BodyWithPermit<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = Bytes::from_owner(Piece { bytes, _what: self.what.clone() }),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let next = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(next);
        if self.rest.is_empty() {
            // An empty slice would hold the permit too.
            self.rest = Bytes::new();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_permit_is_released_with_the_last_byte() {
        let place = Arc::new(());
        let text: Vec<u8> = (0..3 * PIECE + 7).map(|n| n as u8).collect();
        let mut response = holding(Response::new(Body::from(text.clone())), place.clone());
        assert_eq!(length(&response), Some(text.len() as u64));
        let first = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), length(&response)), (PIECE, Some((text.len() - PIECE) as u64)));
        let rest = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!([&first[..], &rest[..]].concat() == text);
        drop(rest);
        assert_eq!(Arc::strong_count(&place), 2, "a part of it is still in memory");
        drop(first);
        assert_eq!(Arc::strong_count(&place), 1);
        for unsent in [Body::empty(), Body::from("some")] {
            drop(holding(Response::new(unsent), place.clone()));
        }
        assert_eq!(Arc::strong_count(&place), 1);
    }
}
