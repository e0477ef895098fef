package demo

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// maxCreated bounds the orders that are made and kept.
const maxCreated = 100_000

// orderBook keeps the orders that POST /orders has made. They are no part of
// the lists, so that pulls stay equal whatever else is going on.
type orderBook struct {
	mu    sync.Mutex
	made  map[string]Order       // by id
	byKey map[string]keyedAnswer // by Idempotency-Key
}

// keyedAnswer is what a key was used for, and what came of it.
type keyedAnswer struct {
	body  [sha256.Size]byte
	order Order
}

func newOrderBook() *orderBook {
	return &orderBook{made: map[string]Order{}, byKey: map[string]keyedAnswer{}}
}

// createOrder makes an order of {"customerId", "product", "quantity",
// "totalCents"}: 201 with the order. A repeated Idempotency-Key gives the first
// order again with the header Idempotent-Replayed, and 422 with another body.
func (s *Server) createOrder(r *http.Request, _ url.Values) (answer, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return answer{}, &failure{http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB, or broken"}
	}
	order := Order{Status: "placed", Currency: "EUR", Quantity: 1}
	if err := json.Unmarshal(body, &order); err != nil {
		return answer{}, badRequest("the body must be an order: customerId, product, quantity, totalCents")
	}
	if n, ok := numberOf(order.CustomerID, "cus_"); !ok || n >= s.data.customers {
		return answer{}, badRequest("customerId must name a customer")
	}
	made, replayed, err := s.orders.add(order, s.data.orders, r.Header.Get("Idempotency-Key"), sha256.Sum256(body))
	if err != nil {
		return answer{}, err
	}
	a := answer{page: 1, status: http.StatusCreated, body: func(dst []byte) []byte { return appendJSON(dst, made) }}
	if replayed {
		a.header = map[string]string{"Idempotent-Replayed": "true"}
	}
	return a, nil
}

// getOrder answers one order of the list or one that was made.
func (s *Server) getOrder(r *http.Request, _ url.Values) (answer, error) {
	id := r.PathValue("id")
	order, ok := s.orders.get(id)
	if n, isID := numberOf(id, "ord_"); !ok && isID && n < s.data.orders {
		order, ok = s.data.order(n), true
	}
	if !ok {
		return answer{}, notFound("no such order")
	}
	return answer{page: 1, body: func(dst []byte) []byte { return appendJSON(dst, order) }}, nil
}

// add keeps a new order, numbered behind the listed ones, or finds the one that
// was made under the same key.
func (b *orderBook) add(o Order, listed int, key string, body [sha256.Size]byte) (order Order, replayed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.byKey[key]; ok && key != "" {
		if known.body != body {
			return o, false, &failure{http.StatusUnprocessableEntity, "this Idempotency-Key was used with another body"}
		}
		return known.order, true, nil
	}
	if len(b.made) >= maxCreated {
		return o, false, &failure{http.StatusInsufficientStorage, "too many orders were made; DELETE /_stats forgets them"}
	}
	o.ID = orderID(listed + len(b.made))
	o.PlacedAt = time.Now().UTC().Truncate(time.Millisecond)
	b.made[o.ID] = o
	if key != "" {
		b.byKey[key] = keyedAnswer{body, o}
	}
	return o, false, nil
}

func (b *orderBook) get(id string) (Order, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.made[id]
	return o, ok
}

func (b *orderBook) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.made)
}

func (b *orderBook) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.made)
	clear(b.byKey)
}
