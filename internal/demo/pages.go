package demo

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// slice is the part of a list that one page holds: records from..to-1 of total.
// Behind the last record from is to or more.
type slice struct {
	from, to, total int
	limit           int
	page            int
}

// cut reads how large the pages are and how many records there are, and cuts
// out the page that begins at record from.
//
//	limit=N or per_page=N  records of a page, default Options.PageSize
//	cap=N                  the page size is silently lowered to N
//	pages=N                the list has N full pages
func (s *Server) cut(q url.Values, total int, from func(limit int) (int, error)) (slice, error) {
	name := "limit"
	if !q.Has(name) {
		name = "per_page"
	}
	limit, err := number(q, name, s.opts.PageSize, 1, maxPageSize)
	if err != nil {
		return slice{}, err
	}
	most, err := number(q, "cap", limit, 1, maxPageSize)
	if err != nil {
		return slice{}, err
	}
	limit = min(limit, most)
	pages, err := number(q, "pages", 0, 0, maxOrders/limit)
	if err != nil {
		return slice{}, err
	}
	if q.Get("pages") != "" {
		total = pages * limit
	}
	begin, err := from(limit)
	if err != nil {
		return slice{}, err
	}
	return slice{from: begin, to: min(begin+limit, total), total: total, limit: limit, page: begin/limit + 1}, nil
}

// byPage reads ?page=, from 1.
func byPage(q url.Values) func(int) (int, error) {
	return func(limit int) (int, error) {
		page, err := number(q, "page", 1, 1, maxOrders)
		return (page - 1) * limit, err
	}
}

// byCursor reads the cursor that the page before gave.
func byCursor(q url.Values) func(int) (int, error) {
	return func(int) (int, error) {
		text := q.Get("cursor")
		if text == "" {
			return 0, nil
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		digits, ok := strings.CutPrefix(string(raw), "after:")
		n, numErr := strconv.Atoi(digits)
		if err != nil || !ok || numErr != nil || n < 0 {
			return 0, badRequest("cursor is none that this list has given")
		}
		return n, nil
	}
}

// next is the cursor behind this page, "" behind the last one. With stuck=N the
// cursor of page N leads to page N again.
func (c slice) next(q url.Values) (string, error) {
	stuck, err := number(q, "stuck", 0, 0, maxOrders)
	if err != nil || c.to >= c.total {
		return "", err
	}
	at := c.to
	if stuck > 0 && c.page >= stuck {
		at = c.from
	}
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt([]byte("after:"), int64(at), 10)), nil
}

// follow is the request's path and query with another cursor.
func follow(r *http.Request, q url.Values, cursor string) string {
	q.Set("cursor", cursor)
	return r.URL.Path + "?" + q.Encode()
}

// ordersByCursor answers {"data": […], "next_cursor": "…"}, null behind the last page.
func (s *Server) ordersByCursor(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byCursor(q))
	if err != nil {
		return answer{}, err
	}
	next, err := c.next(q)
	return answer{page: c.page, body: func(dst []byte) []byte {
		dst = s.data.appendOrders(append(dst, `{"data":[`...), c.from, c.to)
		if next == "" {
			return append(dst, `],"next_cursor":null}`...)
		}
		return append(append(append(dst, `],"next_cursor":"`...), next...), `"}`...)
	}}, err
}

// ordersByPage answers {"data": […], "page", "limit", "total"} for ?page=, from 1.
func (s *Server) ordersByPage(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byPage(q))
	return answer{page: c.page, body: func(dst []byte) []byte {
		dst = s.data.appendOrders(append(dst, `{"data":[`...), c.from, c.to)
		return c.appendCounts(append(dst, `],"page":`...), c.page)
	}}, err
}

// ordersByOffset answers {"items": […], "offset", "limit", "total"} for ?offset=, from 0.
func (s *Server) ordersByOffset(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, func(int) (int, error) { return number(q, "offset", 0, 0, maxOrders) })
	return answer{page: c.page, body: func(dst []byte) []byte {
		dst = s.data.appendOrders(append(dst, `{"items":[`...), c.from, c.to)
		return c.appendCounts(append(dst, `],"offset":`...), c.from)
	}}, err
}

// appendCounts appends a position and the counts that end a page.
func (c slice) appendCounts(dst []byte, position int) []byte {
	dst = strconv.AppendInt(dst, int64(position), 10)
	dst = strconv.AppendInt(append(dst, `,"limit":`...), int64(c.limit), 10)
	dst = strconv.AppendInt(append(dst, `,"total":`...), int64(c.total), 10)
	return append(dst, '}')
}

// ordersByLink answers an array, and the next address in the Link header.
func (s *Server) ordersByLink(r *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byCursor(q))
	if err != nil {
		return answer{}, err
	}
	next, err := c.next(q)
	a := answer{page: c.page, body: func(dst []byte) []byte {
		return append(s.data.appendOrders(append(dst, '['), c.from, c.to), ']')
	}}
	if next != "" {
		a.header = map[string]string{"Link": "<" + follow(r, q, next) + `>; rel="next"`}
	}
	return a, err
}

// ordersByNext answers {"data": […], "paging": {"next": "<address>"}}, null behind the last page.
func (s *Server) ordersByNext(r *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byCursor(q))
	if err != nil {
		return answer{}, err
	}
	cursor, err := c.next(q)
	var next any
	if cursor != "" {
		next = "http://" + r.Host + follow(r, q, cursor)
	}
	return answer{page: c.page, body: func(dst []byte) []byte {
		dst = s.data.appendOrders(append(dst, `{"data":[`...), c.from, c.to)
		dst = append(dst, `],"paging":`...)
		return append(appendJSON(dst, map[string]any{"next": next}), '}')
	}}, err
}

// listCustomers answers {"data": […], "page", "limit", "total"} for ?page=, from 1.
func (s *Server) listCustomers(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.customers, byPage(q))
	return answer{page: c.page, body: func(dst []byte) []byte {
		dst = s.data.appendCustomers(append(dst, `{"data":[`...), c.from, c.to)
		return c.appendCounts(append(dst, `],"page":`...), c.page)
	}}, err
}

// getCustomer answers one customer.
func (s *Server) getCustomer(r *http.Request, _ url.Values) (answer, error) {
	n, ok := numberOf(r.PathValue("id"), "cus_")
	if !ok || n >= s.data.customers {
		return answer{}, notFound("no such customer")
	}
	return answer{page: 1, body: func(dst []byte) []byte { return appendJSON(dst, s.data.customer(n)) }}, nil
}

// report answers a summary of all orders. Its route takes its time.
func (s *Server) report(_ *http.Request, _ url.Values) (answer, error) {
	return answer{page: 1, body: func(dst []byte) []byte {
		return appendJSON(dst, map[string]any{
			"customers": s.data.customers, "orders": s.data.orders,
			"from": s.data.order(0).PlacedAt, "to": s.data.order(s.data.orders - 1).PlacedAt,
		})
	}}, nil
}

// exportCSV answers a page of orders as CSV with a header row.
func (s *Server) exportCSV(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byPage(q))
	return answer{page: c.page, contentType: "text/csv; charset=utf-8", body: func(dst []byte) []byte {
		dst = append(dst, "id,customerId,status,product,quantity,currency,totalCents,placedAt\n"...)
		for i := c.from; i < c.to; i++ {
			o := s.data.order(i)
			dst = append(dst, strings.Join([]string{o.ID, o.CustomerID, o.Status, o.Product, strconv.Itoa(o.Quantity),
				o.Currency, strconv.Itoa(o.TotalCents), o.PlacedAt.Format(time.RFC3339)}, ",")...)
			dst = append(dst, '\n')
		}
		return dst
	}}, err
}

// exportNDJSON answers a page of orders, one JSON object a line.
func (s *Server) exportNDJSON(_ *http.Request, q url.Values) (answer, error) {
	c, err := s.cut(q, s.data.orders, byPage(q))
	return answer{page: c.page, contentType: "application/x-ndjson", body: func(dst []byte) []byte {
		for i := c.from; i < c.to; i++ {
			dst = append(s.data.appendOrders(dst, i, i+1), '\n')
		}
		return dst
	}}, err
}

// maxBody bounds the body of a request.
const maxBody = 1 << 20

// echo answers with the request as it arrived: method, path, query, headers, body.
func (s *Server) echo(r *http.Request, q url.Values) (answer, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return answer{}, &failure{http.StatusRequestEntityTooLarge, "the body is larger than 1 MiB, or broken"}
	}
	if !utf8.Valid(body) {
		return answer{}, badRequest("the body must be UTF-8")
	}
	said := map[string]any{"method": r.Method, "path": r.URL.Path, "query": q, "headers": r.Header, "body": string(body)}
	return answer{page: 1, body: func(dst []byte) []byte { return appendJSON(dst, said) }}, nil
}
